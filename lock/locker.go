package lock

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/internal/ratelog"
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/duty"
	"github.com/httplatch/httplatch/lock/internal/local"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/internal/validity"
)

// Locker grants leases on keys over a [Store]. It is safe for concurrent use,
// and meant to be made once per process: duplicates that meet in one Locker
// are refused without a round trip. It is not a sync.Locker.
type Locker struct {
	core *core
	cfg  config

	stepHint sync.Once // logs a step that is not resumed: once for each guard, because it has its own Locker
}

// core is the part of a Locker that it shares with all Lockers derived from it by With.
type core struct {
	store     Store
	inProcess bool // its calls wait for nothing
	sender    *send.Sender

	about      Description
	transactor Transactor // the store; nil if it is none
	sets       SetClaimer // the store; nil if it is none
	owner      string     // of entries: this process, for operators
	tokens     *minter
	keys       *local.Table
	lines      local.Lines // of callers that wait for one of several keys
	duties     *duty.Queue
	active     send.Counter // leases and acquires that their callers have not ended

	checkDue atomic.Int64           // the moment of the next check of the store
	trouble  atomic.Pointer[string] // the class of the failure that the last check has found, "" for none

	logged ratelog.Log
	outage outage
	recent recent
	names  names

	unfinished atomic.Int64 // submissions that the last Unfinished has listed

	closing context.Context //nolint:containedctx // ended by Close: no caller waits after that
	close   context.CancelFunc
}

// New returns a Locker over store. It does not dial. It calls the Check of a store
// once in every minute of use, and logs a line whenever the class of the result changes; see
// [Stats]. New panics if store is nil, if the options contradict each other, and if they ask
// for fences or transactions that the store does not have.
func New(store Store, opts ...Option) *Locker {
	if store == nil {
		panic("lock: New(nil): pass memstore.New() or a redisstore.Store")
	}
	cfg := config{
		lease:   30 * time.Second,
		maxHold: 15 * time.Minute,
		budget:  500 * time.Millisecond,
		keep:    24 * time.Hour,
		logger:  contained(slog.Default()),
	}.with(opts)
	about := Describe(store)
	cfg.require(&about)
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	c := &core{
		store:     store,
		inProcess: about.Local,
		about:     about,
		owner:     fmt.Sprintf("%s:%d", host, os.Getpid()),
		tokens:    newMinter(about.Local),
		keys:      local.New(),
	}
	c.closing, c.close = context.WithCancel(context.Background()) //nolint:forbidigo // Close ends it
	c.transactor, _ = store.(Transactor)
	c.sets, _ = store.(SetClaimer)
	c.sender = send.New(func(err error) send.Verdict {
		send.LogPanic(&c.logged, cfg.logger, err)
		return verdictOf(err)
	})
	c.checkDue.Store(int64(clock.Now().Add(checkEvery)))
	c.trouble.Store(new(string))
	c.duties = duty.New(c.sender, about.MaxLag)
	c.sender.Dead = func(token string) bool { return c.duties.FateOf(token) == duty.Dead }
	return c.newLocker(cfg)
}

// newLocker returns a Locker over c.
func (c *core) newLocker(cfg config) *Locker {
	return &Locker{core: c, cfg: cfg}
}

// With returns a Locker with other settings over the same store, local keys and clean-up. A key
// held by one of the two Lockers is held for the other too, and closing either closes both.
// Settings without an option stay as they are, and observers are added. With panics if Validate
// returns an error.
func (l *Locker) With(opts ...Option) *Locker {
	cfg := l.cfg.with(opts)
	cfg.require(&l.core.about)
	return l.core.newLocker(cfg)
}

// Validate returns an error that names settings of l and opts which contradict each other, or
// nil. It is for settings that come from a file.
func (l *Locker) Validate(opts ...Option) error {
	cfg := l.cfg.with(opts)
	return cfg.validate()
}

// Store returns the store of l, for an operator's tools. They can list the entries of a store that
// is an [Inspector]. Make claims only through l, never through the store.
func (l *Locker) Store() Store { return l.core.store }

// Keep returns how long a receipt is kept ([WithKeep]).
func (l *Locker) Keep() time.Duration { return l.cfg.keep }

// Logger returns the logger of [WithLogger], for packages that log on behalf of the
// Locker, as package middleware does.
func (l *Locker) Logger() *slog.Logger { return l.cfg.logger }

const (
	checkEvery    = time.Minute     // while the store is in use: an operator can change a server's settings
	checkPatience = 5 * time.Second // for about ten round trips
)

// startCheck begins the check of the store that is due at the moment at. Claims begin checks, and there is no timer: a
// Locker that is not closed keeps nothing alive.
func (l *Locker) startCheck(at clock.Moment) {
	c := l.core
	due := c.checkDue.Load()
	if int64(at) < due || !c.checkDue.CompareAndSwap(due, int64(at.Add(checkEvery))) {
		return // another claim has begun it
	}
	c.sender.Sends.Enter() // it belongs to a claim, for which Close waits
	go func() {
		defer c.sender.Sends.Leave()
		ctx, cancel := context.WithTimeout(c.closing, checkPatience)
		defer cancel()
		l.logCheck(ctx, func() (err error) {
			defer send.Recover(&err)
			return c.about.Check(ctx)
		}())
	}()
}

// logCheck logs the result of a check if its class has changed. It logs nothing about a check that
// did not reach the server, because other lines report calls that failed.
func (l *Locker) logCheck(ctx context.Context, err error) {
	class := Class(err)
	switch class {
	case "dial", "silent", "connection", "handshake", classCancelled:
		return
	}
	before := *l.core.trouble.Swap(&class)
	switch {
	case class == before:
	case err != nil:
		l.cfg.logger.LogAttrs(ctx, slog.LevelError, "lock: the store failed its check", slog.String("class", class), slog.Any("error", err),
			attrDo("Do what the error says. The store is checked again every minute in which it is used, and the next line follows when the class changes."))
	default:
		l.cfg.logger.LogAttrs(ctx, slog.LevelInfo, "lock: the store has passed its check again", slog.String("class", before))
	}
}

// Close ends the Locker and all Lockers made from it by [Locker.With]: it refuses new
// claims with [ErrClosed], waits for the holders of leases until ctx ends, and completes the
// clean-ups, releases and settles that are pending in the background.
//
// When ctx ends before the holders are done, their contexts end with a cause that matches
// ErrClosed, and the holders have one budget to return. If the work of a lease does not return
// even then, the lease is no longer renewed, and lapses. It is not released: that would let
// another process in at the same time. Close then returns an error with the number of leases and
// calls that are left. The store stays open. Close may be called again. Give ctx a deadline:
// while the store does not answer, clean-ups do not end by themselves.
func (l *Locker) Close(ctx context.Context) error {
	c := l.core
	c.active.Close()
	c.close()
	c.duties.Advance(duty.Expedited)
	var err error
	if c.active.Wait(ctx) > 0 {
		err = context.Cause(ctx)
		for _, k := range c.keys.Keys() {
			e := leaseOf(k.Holder)
			if e.local.Granted() && e.validity.State().Phase == validity.Holding { // a settle needs its lease for as long as it is repeated
				abort(e)
			}
		}
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), l.cfg.budget)
		defer cancel()
	}
	c.duties.Advance(duty.Draining)
	working := c.active.Wait(ctx)
	unfinished := c.duties.Wait(ctx)
	calls := c.sender.Sends.Wait(ctx)
	c.duties.Stop()
	for _, k := range c.keys.Keys() {
		abort(leaseOf(k.Holder)) // the lease of a settle that was given up may still be renewed
	}
	if working+unfinished+calls == 0 {
		return nil
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("lock: closed with %d leases still worked under, %d clean-ups and %d store calls unanswered: %w",
		working, unfinished, calls, err)
}

// abort ends the context and the renewals of a lease that has not ended at Close. It lapses.
func abort(e *Lease) {
	if e.local.Granted() {
		e.validity.Halt()
		e.cancel(fmt.Errorf("%w while the lease was held", ErrClosed))
	}
}
