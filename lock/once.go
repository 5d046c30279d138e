package lock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/oncecall"
	"github.com/httplatch/httplatch/internal/requestinfo"
)

// Once runs fn and returns its receipt. If another call has run for key within [WithKeep], Once
// returns the receipt of that call, and sets replayed. Receipts are kept unchanged, so all
// callers get equal bytes.
//
// fingerprint identifies the work: a call with the same key and another fingerprint is refused
// with [ErrMismatch], while the first call runs and after it. An empty fingerprint matches every
// fingerprint.
//
// If fn returns an error, panics or exits its goroutine, this happens:
//
//   - The key is free for the next call. If fn has called [Commit], an empty receipt is left
//     instead. After a takeover, the key is given back as it was, and the next call takes it
//     over.
//   - Calls of this process that wait for fn ([WithWait]) do not run. They return fn's error,
//     with replayed set, or an error that says that fn did not return. But if fn failed after
//     the context of its caller had ended, without [WithDetached], the next waiting call runs.
//
// If the process dies, the outcome is unknown: later calls are refused with [ErrAbandoned]
// until WithKeep is over, or run again with [WithRerunAbandoned]. A lease that fn has acquired ends
// in the store before that of the run, so it does not refuse the next run. It survives an outage of the
// store for half of WithLease, where other leases survive two thirds.
//
// With [WithTransaction], fn runs in a transaction of the store.
//
// Other errors are as for [Locker.Acquire]. An error that matches [ErrLost] says that fn has run,
// but lost its lease to another call, which has left no receipt yet. If the store does not
// answer the settle, Once returns the receipt, and settles it in the background. If the store
// has no room for the receipt, this caller gets it, and later callers get an empty one.
// Work that ran unprotected ([WithFailOpen]) leaves no receipt: the next call runs fn again. Calls
// of this process that wait for its end are then refused with [ErrHeld].
// Over a store that keeps no receipts, such as a quorum, the error matches
// errors.ErrUnsupported, and fn is not run.
func (l *Locker) Once(ctx context.Context, key string, fingerprint []byte,
	fn func(ctx context.Context) (receipt []byte, err error),
) (receipt []byte, replayed bool, err error) {
	return l.once(ctx, nil, key, fingerprint, fn)
}

// forMiddleware is a Locker with the methods for package middleware.
type forMiddleware Locker

var _ = oncecall.Provide(func(locker any) oncecall.Locker {
	return (*forMiddleware)(locker.(*Locker)) //nolint:errcheck,forcetypeassert // it is one
})

// Once implements oncecall.Locker.
func (m *forMiddleware) Once(ctx context.Context, call *oncecall.Call, key string, fingerprint []byte) (receipt []byte, replayed bool, err error) {
	return (*Locker)(m).once(ctx, call, key, fingerprint, call.Work.Run)
}

// once is Once, with call for additional arguments and results of package middleware. call may be
// nil.
func (l *Locker) once(ctx context.Context, call *oncecall.Call, key string, fingerprint []byte,
	fn func(ctx context.Context) (receipt []byte, err error),
) (receipt []byte, replayed bool, err error) {
	if err := validKey(key); err != nil {
		return nil, false, err
	}
	if err := l.core.noReceipts; err != nil {
		return nil, false, err
	}
	entry := entryName(keytext.Record(key))
	if receipt, ok := findReceipt(ctx, l, call, key, entry, fingerprint); ok {
		return receipt, true, nil
	}
	r := newRun(ctx, l, key, entry, call.ScopeOf(), fingerprint)
	e := &r.lease
	e.observed = l.observation(ctx)
	r.record.owner = call.Owner(e.owner())
	terms := acquireTerms{wait: l.cfg.wait}
	if call != nil && !l.cfg.waitSet {
		terms.wait = call.Wait
	}
	if err := l.acquire(ctx, e, terms); err != nil {
		if earlier, is := replayedBy(err); is {
			setLeft(ctx, l, call, entry, earlier)
		}
		return resultWithoutRun(err)
	}
	if e.local.Bypassed() {
		return r.unprotected(fn)
	}
	call.Begin(r)

	if receipt, err = r.call(ctx, fn); err != nil {
		undone := r.record.forgottenOnCrash(l.cfg.inTx)
		if end := r.fail(ctx, err); errors.Is(end, ErrLost) {
			err = errors.Join(err, end)
			if undone {
				return r.successorReceipt(ctx, &oncecall.UndoneError{Err: err})
			}
		}
		return nil, false, err
	}
	return r.succeed(ctx, receipt)
}

// call calls fn. If fn panics, or ends its goroutine, the run fails, and the panic or the end goes on.
func (r *run) call(ctx context.Context, fn func(ctx context.Context) ([]byte, error)) (receipt []byte, err error) {
	returned := false
	defer func() {
		if !returned {
			_ = r.fail(ctx, errNotReturned)
		}
	}()
	work, err := r.begin(ctx)
	if err == nil {
		receipt, err = fn(work)
	}
	returned = true
	return receipt, err
}

// resultWithoutRun maps an acquire error to Once's results.
func resultWithoutRun(err error) (receipt []byte, replayed bool, _ error) {
	if failed, ok := errors.AsType[*failedRunError](err); ok {
		return nil, true, failed.err
	}
	if earlier, is := replayedBy(err); is {
		return earlier.Receipt, true, nil
	}
	return nil, false, err
}

// replayedBy returns the entry with the earlier call's receipt, if err is a replay.
func replayedBy(err error) (earlier Entry, is bool) {
	if !errors.Is(err, errReplay) {
		return Entry{}, false
	}
	refused, _ := errors.AsType[*RefusedError](err)
	return refused.Entry, true
}

// setLeft sets call.Left, if the caller asks for it, to the time for which the receipt of earlier
// is still kept. With some stores, the answer to a claim does not contain this time, and setLeft
// reads the entry.
func setLeft(ctx context.Context, l *Locker, call *oncecall.Call, name entryName, earlier Entry) {
	if call == nil || call.Left != oncecall.AskLeft {
		return
	}
	call.Left = 0
	if earlier.Left == 0 {
		token := earlier.Token
		err := l.askLogged(ctx, l.lastingTerms(), sendFunc(func(ctx context.Context) (err error) {
			earlier, err = l.core.store.Get(ctx, string(name))
			return err
		}))
		if err != nil || earlier.Token != token {
			return // not known
		}
	}
	call.Left = earlier.Left
}

var errNotReturned = errors.New("lock: the function that this call waited for panicked, or ended its goroutine")

// Attempt returns 1 in the first execution of a function under [Locker.Once],
// more in one that took over from a holder that had vanished, and 0 outside.
func Attempt(ctx context.Context) int {
	r := runOf(ctx)
	if r == nil {
		return 0
	}
	return r.record.attempt
}

// Commit says that the effect has happened: from here on, an error, a panic or
// a crash of the function that [Locker.Once] runs no longer frees the key.
// Callers that wait for the answer go on waiting. After a crash, later calls are refused until
// WithKeep is over: with [ErrAbandoned], or under WithRerunAbandoned with [ErrHeld], because the
// store then cannot distinguish a working holder from one that has vanished.
//
// An error that matches [ErrLost] says that the lease was over already. An error that matches
// [ErrUnavailable] is possible with [WithRerunAbandoned] and [WithTransaction] only: the store
// has not recorded the commit, so a crash would still let the work run again. Outside of Once,
// Idempotent and Dedupe, Commit returns an error and does nothing.
func Commit(ctx context.Context) error {
	r := runOf(ctx)
	if r == nil {
		return errors.New("lock: Commit outside of Locker.Once")
	}
	return r.note(ctx, func() { r.record.effects.committed = true })
}

// findReceipt looks for a receipt before a run is made, because a run that never starts would be
// most of the cost of a replay. If ok is false, there may still be a receipt, which acquire will
// find. findReceipt does not ask a store outside this process: where there is no receipt, that
// would cost one more round trip.
//
// findReceipt need not ask the local table first. A settled record stays settled until its keep
// is over, so a lease that still has the key is about to end.
func findReceipt(ctx context.Context, l *Locker, call *oncecall.Call, label string, name entryName, fingerprint []byte) (receipt []byte, ok bool) {
	if !l.core.inProcess || l.cfg.origin != nil || ctx.Err() != nil || l.core.active.Closed() {
		return nil, false
	}
	var began time.Time
	if l.hasObservers() {
		began = time.Now()
	}
	entry, err := l.core.store.Get(ctx, string(name))
	if err != nil || entry.State != Settled || !sameRequest(fingerprint, entry.Fingerprint) {
		return nil, false
	}
	if l.hasObservers() {
		l.announce(ctx, Event{
			Kind: EventReplayed, Name: cmp.Or(call.GuardName(), keytext.Name(label)), Key: label, Once: true, Attempt: 1,
			Took: time.Since(began), Owner: requestinfo.Process(entry.Owner),
		})
	}
	setLeft(ctx, l, call, name, entry)
	return entry.Receipt, true
}
