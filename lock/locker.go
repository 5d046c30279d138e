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

	about  Description
	sets   SetClaimer // the store; nil if it is none
	owner  string     // of entries: this process, for operators
	tokens *minter
	keys   *local.Table
	lines  local.Lines // of callers that wait for one of several keys
	duties *duty.Queue
	active send.Counter // leases and acquires that their callers have not ended

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
	c.sets, _ = store.(SetClaimer)
	c.sender = send.New(func(err error) send.Verdict {
		send.LogPanic(&c.logged, cfg.logger, err)
		return verdictOf(err)
	})
	c.checkDue.Store(int64(clock.Now().Add(checkEvery)))
	c.trouble.Store(new(string))
	c.duties = duty.New(c.sender, about.MaxLag)
	c.sender.Dead = func(token string) bool { return c.duties.FateOf(token) == duty.Dead }
	return &Locker{core: c, cfg: cfg}
}

// With returns a Locker with other settings over the same store, local keys and clean-up. A key
// held by one of the two Lockers is held for the other too, and closing either closes both.
// Settings without an option stay as they are, and observers are added. With panics if Validate
// returns an error.
func (l *Locker) With(opts ...Option) *Locker {
	cfg := l.cfg.with(opts)
	cfg.require(&l.core.about)
	return &Locker{core: l.core, cfg: cfg}
}

// Validate returns an error that names settings of l and opts which contradict each other, or
// which the store cannot serve, or nil. It is for settings that come from a file.
func (l *Locker) Validate(opts ...Option) error {
	cfg := l.cfg.with(opts)
	return cfg.validate(&l.core.about)
}

// Store returns the store of l, for an operator's tools. They can list the entries of a store that
// is an [Inspector]. Make claims only through l, never through the store.
func (l *Locker) Store() Store { return l.core.store }

// Keep returns how long a receipt is kept ([WithKeep]).
func (l *Locker) Keep() time.Duration { return l.cfg.keep }

// Logger returns the logger of [WithLogger], for packages that log on behalf of the
// Locker, as package middleware does.
func (l *Locker) Logger() *slog.Logger { return l.cfg.logger }
