package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// Option configures a [Locker] in [New] and [Locker.With].
type Option interface{ apply(c *config) }

type option func(c *config)

func (o option) apply(c *config) { o(c) }

type config struct {
	lease     time.Duration
	maxHold   time.Duration
	budget    time.Duration
	wait      time.Duration // for a holder
	waitSet   bool          // by WithWait: the default of a guard does not count
	keep      time.Duration
	rerun     bool
	detached  bool
	fenced    bool
	failOpen  bool
	inTx      bool
	observers []Observer
	origin    func(ctx context.Context) string
	logger    *slog.Logger
}

func (c config) with(opts []Option) config {
	// Two Lockers must not append to one array.
	c.observers = append([]Observer(nil), c.observers...)
	for _, o := range opts {
		if o == nil {
			panic("lock: nil Option")
		}
		o.apply(&c)
	}
	return c
}

// require panics if c is not valid for a store.
func (c *config) require(about *Description) {
	if err := c.validate(about); err != nil {
		panic("lock: " + err.Error())
	}
}

// validate returns an error if two settings contradict each other, or one needs a feature that the store does not have.
func (c *config) validate(about *Description) error {
	switch {
	case c.fenced && about.NoFences != nil:
		return fmt.Errorf("WithFencing: %w", about.NoFences)
	case c.inTx && about.NoTransactions != nil:
		return fmt.Errorf("WithTransaction: %w", about.NoTransactions)
	case c.lease < 2*c.budget:
		return fmt.Errorf("a lease of %v is too short for a budget of %v: a claim that was answered late would be over "+
			"before its work began; the lease must be at least twice the budget", c.lease, c.budget)
	case c.maxHold < c.lease:
		return fmt.Errorf("a maximum hold of %v is shorter than the lease of %v", c.maxHold, c.lease)
	case c.inTx && c.failOpen:
		return errors.New("WithTransaction and WithFailOpen contradict each other: work that runs unprotected has no transaction; " +
			"where the database does not answer, the work could not write to it either")
	}
	return nil
}

// stepKeep is how long a step is kept. A submission that was abandoned is remembered for keep after
// the end of its lease, and a step may be as old as the run.
func (c *config) stepKeep() time.Duration { return c.keep + c.maxHold + c.lease }

func positive(name string, d time.Duration) {
	if d <= 0 {
		panic(fmt.Sprintf("lock: %s(%v): the duration must be positive", name, d))
	}
}

// WithLease sets how long a key stays taken when its process dies: 30 s unless
// set. A living holder renews it at a third of its length. The first lease of a lock is
// shorter: 5 s, or four budgets if that is longer, but never more than d. Its first renewal,
// at a third of it, makes it d long. A lease of [Locker.Once], or over a store in this
// process, is d long from the beginning. New panics if d is less than twice the budget.
func WithLease(d time.Duration) Option {
	positive("WithLease", d)
	return option(func(c *config) { c.lease = d })
}

// WithMaxHold sets how long a lease is renewed: 15 min unless set. A
// holder that works longer loses the lease.
func WithMaxHold(d time.Duration) Option {
	positive("WithMaxHold", d)
	return option(func(c *config) { c.maxHold = d })
}

// WithBudget sets how long one claim, and one settle or release, may wait for
// the store, retries included: 500 ms unless set. A call that got no answer within
// a third of it is sent once more, if the retry budget allows it. So set at least three
// times the time of a slow answer.
func WithBudget(d time.Duration) Option {
	positive("WithBudget", d)
	return option(func(c *config) { c.budget = d })
}

// WithWait makes a caller wait up to d for a key that is held, or in Once for the receipt of
// its holder. With 0, the caller is refused at once. Unless set, middleware.Idempotent and
// middleware.Dedupe wait 10 s, and all other callers are refused at once. Callers in one process
// queue in the order of their arrival, at most 64 per key; the others are refused at once. Only the
// first of a queue polls, at random intervals below half a second, and only if another process has
// the key, so there is no order among processes. A store with hints, as with
// redisstore.WithNotifications, shortens these waits, and is polled every two seconds or so. WithWait
// panics if d is negative.
//
// A caller that has met a holder polls until d is over or its context ends, even if the store
// does not serve a poll. If the last poll was not served, the error matches [ErrUnavailable].
// With [WithFailOpen], the first poll that is not served ends the wait, also of the callers behind it,
// and they are refused: their work would run at the same time as the holder's. Callers that wait for a
// run of [Locker.Once] in their process get the error of the run if it fails, and do not run.
//
// Even a caller that is refused at once waits for a pending claim of the same process, at most for
// the budget, and shares its result.
func WithWait(d time.Duration) Option {
	if d < 0 {
		panic(fmt.Sprintf("lock: WithWait(%v): the duration must not be negative", d))
	}
	return option(func(c *config) { c.wait, c.waitSet = d, true })
}

// WithKeep sets how long [Locker.Once] remembers a receipt, or that an outcome
// is unknown: 24 h unless set.
func WithKeep(d time.Duration) Option {
	positive("WithKeep", d)
	return option(func(c *config) { c.keep = d })
}

// WithRerunAbandoned lets [Locker.Once] run the work again when the process
// that ran it has vanished, as soon as its lease is over. The progress of the first run is
// unknown, so the work may happen twice. [Attempt] returns more than 1 in a later run.
// Unless set, such a key is refused with [ErrAbandoned] until WithKeep is over.
func WithRerunAbandoned() Option {
	return option(func(c *config) { c.rerun = true })
}

// WithDetached lets the work go on when the caller's context ends: the context of the work then
// ends only with the lease. middleware.Idempotent and middleware.Dedupe always detach their work.
// Set it for middleware.Lock where a browser may give up a request that it has sent.
func WithDetached() Option {
	return option(func(c *config) { c.detached = true })
}

// WithFencing asks the store for a fencing token with each grant
// ([Lease.Fence]), and to refuse commands that reach it after their caller has
// given up. [New] and [Locker.With] panic if the store describes itself as one without
// fences; other stores without them answer every claim with errors.ErrUnsupported.
func WithFencing() Option {
	return option(func(c *config) { c.fenced = true })
}

// WithFailOpen runs the work unprotected if the store gives no answer within the
// budget, or denies the call ([ErrDenied]). [Locker.Do] and [Locker.Once] run their
// functions, and [Locker.Acquire] returns a lease that protects nothing: [FromContext]
// does not find the lease in its context, the lease has no fence, and neither the lease nor
// Once leaves a receipt. [Attempt] and [Commit] find no run. The lease has to be released all
// the same: until then, and for the length of a lease at most, duplicates that reach this
// process are refused or wait, and [Locker.Close] waits. Duplicates that reach other processes are not
// refused. Observers get an [EventBypassed].
//
// Unless set, such work does not run, and the error matches [ErrUnavailable]. It never
// runs unprotected if the key was refused, if the store does not support the claim
// (errors.ErrUnsupported), if the Locker is closed, or if the caller's context has ended. While a settle of
// this process lacks its answer, duplicates are refused with [ErrHeld]: the work was done.
func WithFailOpen() Option {
	return option(func(c *config) { c.failOpen = true })
}

// WithFailClosed refuses work with [ErrUnavailable] if the store gives no answer. This is the
// default. Use it with [Locker.With], to derive a Locker without the [WithFailOpen] of the
// original.
func WithFailClosed() Option {
	return option(func(c *config) { c.failOpen = false })
}

// WithTransaction runs the function of [Locker.Once] in a transaction of the store, and
// commits it together with the receipt: either both are committed, or neither. The store has to be
// a [Transactor], or [New] and [Locker.With] panic. The package of the store says how the function
// gets the transaction from its context. [Locker.Do] and [Locker.Acquire] do not change.
//
// If the function fails, its transaction is rolled back. Work without a receipt did not
// happen: if the process dies, the key is free after its lease, and the next call runs as the
// first ([Attempt]), without [WithRerunAbandoned]. Call [Commit] before an effect outside of the
// database. Commit fails if the store does not record it. After a Commit, a failure still rolls
// back the writes of the transaction, but does not free the key.
//
// Once returns after the commit. It has these additional errors:
//
//   - An error that matches ErrUnavailable: all was rolled back, and the same call may succeed,
//     as after a serialization failure.
//   - An error that matches [ErrNotApplied], and not ErrUnavailable: all was rolled back because
//     the transaction could not be committed, as after a statement that has failed.
//   - An error that matches [ErrUnknown]: the store answered neither the commit nor, within
//     another budget, the question about the outcome. The question is repeated in the background.
//     The key is held until the store answers. Then the next call gets the receipt, or runs.
//   - An error that matches [ErrLost]: all was rolled back.
//
// It contradicts [WithFailOpen]. Derive a Locker with it ([Locker.With]) for the routes that
// need it, and use the original for the others.
func WithTransaction() Option {
	return option(func(c *config) { c.inTx = true })
}

// WithObserver adds an observer of events. It may be given several times. A panic of an observer is
// logged. An observer must not end its goroutine: see [WithLogger].
func WithObserver(o Observer) Option {
	if o == nil {
		panic("lock: WithObserver(nil)")
	}
	return option(func(c *config) { c.observers = append(c.observers, o) })
}

// WithOrigin appends a space and the result of f to the owner that stores keep with every
// entry. An observer in another process that later gets an event about the entry then knows its
// origin ([Event]'s Owner): with package lockotel, the trace. f is called once per acquire, with the
// caller's context, and must be safe for concurrent use. Its result is stored and shown to
// operators: keep it short, and free of secrets. "" adds nothing. WithOrigin panics if f is
// nil.
func WithOrigin(f func(ctx context.Context) string) Option {
	if f == nil {
		panic("lock: WithOrigin(nil)")
	}
	return option(func(c *config) { c.origin = f })
}

// WithLogger sets the logger of the Locker, for lines that an operator must see: lost leases,
// refusals by the store, work that runs unprotected or a second time, and keys that only an
// operator can free. Each line has advice in "do". The guards of package middleware and the
// console over the Locker use the logger too. Unless set, it is the slog.Default() at the time
// of [New].
//
// Keys are logged as hashes. A line about a record of [Locker.Once] has a link in "console",
// relative to the address of package console. A store may serve several Lockers: redisstore and
// quorum log to slog.Default() by themselves, for example a panic in a hook of their client.
//
// A handler that panics loses its line. It must not end its goroutine (runtime.Goexit), as FailNow
// of a test does: the key would stay taken until its lease is over, and Close would wait.
func WithLogger(l *slog.Logger) Option {
	if l == nil {
		panic("lock: WithLogger(nil)")
	}
	return option(func(c *config) { c.logger = contained(l) })
}

// contained returns l with a handler whose panics cost no more than their lines.
func contained(l *slog.Logger) *slog.Logger { return slog.New(containedHandler{l.Handler()}) }

type containedHandler struct{ slog.Handler }

// Handle is part of [slog.Handler].
func (h containedHandler) Handle(ctx context.Context, r slog.Record) (err error) {
	defer send.Recover(&err)
	return h.Handler.Handle(ctx, r)
}

// WithAttrs is part of [slog.Handler].
func (h containedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return containedHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup is part of [slog.Handler].
func (h containedHandler) WithGroup(name string) slog.Handler {
	return containedHandler{h.Handler.WithGroup(name)}
}
