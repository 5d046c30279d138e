package lock

import (
	"context"
	"errors"
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
// but lost its lease to another call, which has left no receipt yet. If the store has lost the entry
// meanwhile, or an operator has freed it, and fn was not notified before it returned, the receipt gets
// a new entry. If the store does not answer the settle, Once returns the receipt, and settles it in the
// background. If the store has no room for the receipt, this caller gets it, and later callers get an empty one.
// Work that ran unprotected ([WithFailOpen]) leaves no receipt: the next call runs fn again. Calls
// of this process that wait for its end are then refused with [ErrHeld].
// Over a store that keeps no receipts, such as a quorum, the error matches
// errors.ErrUnsupported, and fn is not run.
func (l *Locker) Once(ctx context.Context, key string, fingerprint []byte,
	fn func(ctx context.Context) (receipt []byte, err error),
) (receipt []byte, replayed bool, err error) {
	r, earlier, err := l.Begin(ctx, key, fingerprint, nil)
	failed, waited := err.(*FailedRunError) //nolint:errorlint // the cause of ctx may be one, of another key
	switch {
	case waited:
		return nil, true, failed.Err
	case err != nil:
		return nil, false, err
	case r == nil:
		return earlier.Receipt, true, nil
	}
	returned := false
	defer func() {
		if !returned {
			_, _, _ = r.Fail(ctx, errNotReturned)
		}
	}()
	receipt, err = fn(r.Context())
	if returned = true; err != nil {
		return r.Fail(ctx, err)
	}
	return r.Settle(ctx, receipt)
}

var errNotReturned = errors.New("lock: the function that this call waited for panicked, or ended its goroutine")

// Attempt returns 1 in the first execution of a function under [Locker.Once],
// more in one that took over from a holder that had vanished, and 0 outside, and in one that runs
// unprotected ([WithFailOpen]).
func Attempt(ctx context.Context) int {
	r, _ := ctx.Value(runKey{}).(*Run)
	if r == nil || r.lease.local.Unprotected() {
		return 0
	}
	return r.attempt
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
	return r.note(ctx, func() { r.effects.committed = true })
}
