package lock

import (
	"context"
	"errors"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/local"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Submission describes a request to a guard, for [Locker.Begin].
type Submission struct {
	Scope string        // whose work it is, as in [Claim]
	Wait  time.Duration // how long to wait for the receipt of a holder, unless the Locker has [WithWait]

	// Guard, Method, Path and Label are for operators, as in [Unfinished]. Without a Guard, the
	// others are not kept.
	Guard, Method, Path, Label string

	// AskLeft asks for the Left of an earlier receipt. It costs a call to a store whose answer to a
	// claim lacks it, and Left is 0 if that call fails.
	AskLeft bool
}

// runOf returns the innermost run around ctx that has a lease, nil if there is none.
func runOf(ctx context.Context) *Run {
	r, _ := ctx.Value(runKey{}).(*Run)
	for r != nil && r.lease.local.Unprotected() {
		r, _ = r.lease.parent.Value(runKey{}).(*Run)
	}
	return r
}

// Context returns the context for the work. It ends when the run does, or with a cause that matches
// [ErrLost]. With [WithTransaction], it carries the transaction.
func (r *Run) Context() context.Context {
	switch {
	case r.tx != nil:
		return r.txWork
	case r.lease.local.Unprotected():
		return context.WithValue(r.lease.parent, runKey{}, r)
	}
	return (*leaseContext)(&r.lease)
}

// Settle ends the run with receipt, and returns the results of [Locker.Once]: receipt, or with replayed
// set the receipt of another run that took over before. It goes on when ctx ends. It may be called before
// the work has returned, except in a transaction. Later calls change nothing and return the results of the
// first, with the receipt that they are given. After Fail, and after a commit, Settle returns an error that
// matches [ErrLost]. Settle takes at most the budget; twice that if the store has no room for receipt, and
// two budgets more if it has lost the entry.
func (r *Run) Settle(ctx context.Context, receipt []byte) (kept []byte, replayed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	phase := r.phase
	if phase == running {
		r.phase = runSettled
	}
	switch {
	case phase == runFailed:
		return nil, false, errReleased
	case phase == runSettled && r.tx != nil && r.err != nil:
		return nil, false, r.err
	case phase == runSettled:
	case r.tx != nil:
		kept, replayed, err = r.commit(ctx, receipt)
		if r.err = err; replayed {
			r.err = errReleased
		}
		return kept, replayed, err
	case r.lease.local.Unprotected():
		r.endUnprotected(ctx)
	default:
		r.err = r.lease.endWith(ctx, leaseEnd{settles: true, answer: true, receipt: receipt, keep: r.kept()})
	}
	if !errors.Is(r.err, ErrLost) {
		// The receipt is settled, or will be when the store answers.
		return receipt, false, nil
	}
	return r.successorReceipt(ctx, r.err)
}

// Fail ends the run without a receipt, unless it may have had an effect ([Commit],
// [Run.NotePossibleEffect], [Run.Hold]): then it leaves the receipt of the effect, or an empty one. It
// returns the results of [Locker.Once] for work that has returned err. Calls of this process that wait
// for the run get err as a [*FailedRunError], and do not run. If err is nil, or concerns this caller alone because its context has ended or its lease was
// lost, the next of them runs. After Settle or Fail, Fail does nothing and returns err.
func (r *Run) Fail(ctx context.Context, err error) (receipt []byte, replayed bool, _ error) {
	r.mu.Lock()
	phase := r.phase
	if phase == running {
		r.phase = runFailed
	}
	r.mu.Unlock()
	switch {
	case phase != running:
		return nil, false, err
	case r.lease.local.Unprotected():
		r.endUnprotected(ctx)
		return nil, false, err
	}
	e := &r.lease
	l := e.locker
	undone := r.forgottenOnCrash(l.cfg.inTx)
	freed := r.effects.free()
	if r.tx != nil {
		// Without an answer, the server ends the transaction later.
		_ = l.call(ctx, send.Terms{Budget: l.cfg.budget, Lasting: true, Single: true}, &call{do: r.tx.Rollback})
	}
	if freed && err != nil && e.parent.Err() == nil && e.validity.State().Lost == nil {
		// Each of the calls that wait would repeat work that has just failed.
		e.local.Share(func() local.Decision { return &decision{failure: err} })
	}
	lost, _ := e.validity.End(!freed)
	_, elsewhere := r.effects.now().receipt() // a request may turn out not to have been sent while the store is asked
	end := r.endFailed(ctx, freed, lost)
	if elsewhere {
		l.warn(ctx, e, warnPossibleEffect.ofKey(e))
	}
	if !errors.Is(end, ErrLost) {
		return nil, false, err
	}
	if err = errors.Join(err, end); undone {
		return r.successorReceipt(ctx, &TransactionError{Err: err})
	}
	return nil, false, err
}

// endFailed ends the lease of work that has failed, or that was rolled back. The key is free, unless the work may have
// had an effect elsewhere.
func (r *Run) endFailed(ctx context.Context, freed bool, lost error) error {
	e := &r.lease
	switch {
	case !freed:
		receipt, _ := r.effects.now().receipt()
		return e.endInStore(ctx, leaseEnd{settles: true, receipt: receipt, keep: r.kept()}, lost)
	case r.attempt > 1:
		e.giveBackTakeover(ctx)
		return nil
	}
	e.validity.Halt()
	return e.endInStore(ctx, leaseEnd{}, lost)
}

// endUnprotected ends a run whose work ran unprotected. Callers that wait for it are refused, because
// they would run it again.
func (r *Run) endUnprotected(ctx context.Context) {
	e := &r.lease
	e.local.Share(func() local.Decision {
		d := grantOf(e)
		d.fingerprint, d.unprotected = e.fingerprint(), true
		return d
	})
	_ = e.Release(ctx)
}

// successorReceipt returns the receipt of the run that took over after this run lost its lease.
// All callers must get the same answer, so the successor's receipt replaces this run's.
func (r *Run) successorReceipt(ctx context.Context, lost error) ([]byte, bool, error) {
	l := r.lease.locker
	entry, err := l.read(ctx, r.lease.entry, true)
	if err == nil && entry.State == Settled && sameRequest(r.fingerprint, entry.Fingerprint) {
		return entry.Receipt, true, nil
	}
	return nil, false, lost
}

// settled reports whether the run was settled. It waits for a Settle that is under way.
func (r *Run) settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase == runSettled
}

// Hold notes that an answer begins to leave before the work has returned. From then on, neither a
// failure nor a crash frees the key, and a run that fails leaves receipt. It asks the store whether the
// run still has its key: unlike a possible effect elsewhere, the beginning of an answer is always
// confirmed, because a run whose key an operator has given to another run must not answer. An error that
// matches [ErrLost] says that it has not. Any other error says that a crash would still free the key.
func (r *Run) Hold(ctx context.Context, receipt []byte) error {
	if r.lease.local.Unprotected() {
		return errBypassed
	}
	if !r.effects.note(func() { r.effects.begun, r.effects.failedReceipt = true, receipt }) {
		return errReleased
	}
	err := r.noteInStore(ctx)
	if err != nil && !errors.Is(err, ErrLost) && !r.lease.locker.cfg.rerun {
		return nil // a crash does not free the key: abandoned work is not run again
	}
	return err
}

// kept returns how long the receipt of r is kept. It is not forgotten before the steps of r: a new
// submission with the same key must not find them done.
func (r *Run) kept() time.Duration {
	if r.effects.now().steps != nil {
		return r.lease.locker.cfg.stepKeep()
	}
	return r.lease.locker.cfg.keep
}

// InTransaction reports whether the work runs in a transaction of the store ([WithTransaction]), which
// Settle commits.
func (r *Run) InTransaction() bool { return r.tx != nil }

// Committed reports whether [Commit] was called in the work.
func (r *Run) Committed() bool { return r.effects.now().committed }

// NotePossibleEffect notes a call to another service, before it is sent. From then on, neither a failure
// nor a crash frees the key, and a run that fails leaves receipt. none takes the note back, if
// the call certainly had no effect. NotePossibleEffect writes to the store as [Commit] does, and returns
// the same errors. After an error, do not send the call.
func (r *Run) NotePossibleEffect(ctx context.Context, receipt []byte) (none func(), err error) {
	f := &r.effects
	if r.settled() || r.lease.local.Unprotected() { // the key will not be freed, or was never claimed
		return func() {}, nil
	}
	noted := false
	err = r.note(ctx, func() {
		noted, f.possibleEffects = true, f.possibleEffects+1
		if !f.begun {
			f.failedReceipt = receipt
		}
	})
	none = func() { f.note(func() { f.possibleEffects-- }) }
	if err == nil {
		return none, nil
	}
	if noted {
		none()
	}
	return nil, err
}

// note calls mark to note an effect that has happened, or may have happened. If a crash would
// otherwise free the key, it also notes the effect in the store.
func (r *Run) note(ctx context.Context, mark func()) error {
	if !r.effects.note(mark) {
		return errReleased
	}
	if cfg := &r.lease.locker.cfg; !cfg.rerun && !cfg.inTx {
		return r.lease.validity.State().Lost // a crash does not free the key: abandoned work is not run again
	}
	return r.noteInStore(ctx)
}

// noteInStore renews the entry so that a crash does not free the key.
func (r *Run) noteInStore(ctx context.Context) error {
	e := &r.lease
	l := e.locker
	if err := e.validity.State().Lost; err != nil {
		return err
	}
	length, began := l.cfg.keep, time.Now()
	if !l.cfg.rerun {
		length, _, _ = e.span(min(l.cfg.lease, e.claim.lastEnd.Until()), clock.Now())
		length = max(length, time.Millisecond) // only the linger has to change
	}
	renew := call{name: callRenew, key: e.entry, claim: e.claimOf(length)}
	err := l.call(ctx, send.Terms{Budget: l.cfg.budget, Lasting: true}, &renew)
	switch {
	case err != nil:
		l.emitFailed(ctx, e, callRenew, time.Since(began), err)
		return err
	case !renew.ok:
		return e.lose(errTaken)
	}
	return nil
}
