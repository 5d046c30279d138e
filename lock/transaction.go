package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/duty"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// begin begins the store's transaction around the work. It stops when the context of the caller
// ends, even if the work may outlive the caller: other work of this process may use the
// connection for which it waits.
func (r *Run) begin(caller context.Context) error {
	e := &r.lease
	l, began := e.locker, clock.Now()
	ctx, cancel := context.WithCancelCause((*leaseContext)(e)) // ends with the lease
	stop := context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })
	err := func() (err error) {
		defer send.Recover(&err)
		work, tx, err := l.core.store.(Transactor).Begin(ctx, e.entry, e.claim.token) //nolint:errcheck,forcetypeassert // NoTransactions says that it is one
		if err == nil {
			r.tx, r.txWork = tx, work
		}
		return err
	}()
	if !stop() {
		err = context.Cause(caller)
	}
	if err == nil {
		return nil
	}
	cancel(err)
	if err = publicError(err, false); send.Gone(caller) == nil {
		l.logFailure(caller, err)
	}
	l.emitFailed(caller, e, callBegin, began.Since(), err)
	return fmt.Errorf("lock: the transaction of the work was not begun: %w", err)
}

// commit ends a run whose function has returned receipt: the store commits the transaction
// together with the receipt. The commit is sent once. If it has no answer, the store is asked for its outcome,
// within a budget of its own, and in the background if that has no answer either.
func (r *Run) commit(ctx context.Context, receipt []byte) ([]byte, bool, error) {
	e := &r.lease
	l, n := e.locker, &e.end
	lost, _ := e.validity.End(true) // the lease is renewed until there is an answer
	*n = leaseEnd{settles: true, receipt: slices.Clone(receipt), keep: r.kept(), began: e.claim.grantedAt.Since()}
	if len(l.cfg.observers) > 0 {
		ctx = context.WithoutCancel(ctx)
	}
	var committed bool
	var failure, err error
	_ = l.call(ctx, send.Terms{Budget: l.cfg.budget, Lasting: true, Single: true}, &call{quiet: true, do: func(ctx context.Context) (err error) {
		defer func() { failure = err }() // the store's own error
		defer send.Recover(&err)
		committed, err = r.tx.Settle(ctx, n.receipt, n.keep)
		return err
	}})
	switch {
	case failure == nil && committed:
		return receipt, false, e.endAnswered(ctx, true, lost)
	case failure == nil: // another caller has the key, so everything was rolled back
		return r.successorReceipt(ctx, e.endAnswered(ctx, false, lost))
	case errors.Is(failure, ErrNotApplied) && errors.Is(failure, ErrUnavailable):
		err = fmt.Errorf("lock: the transaction of the work was rolled back: %w", failure)
	case errors.Is(failure, ErrNotApplied):
		err = &TransactionError{Err: failure, Aborted: true}
	default:
		switch committed, unasked := r.outcome(ctx); {
		case unasked != nil: // a question that was not sent says nothing about the commit
			err = &TransactionError{Err: fmt.Errorf("%w: the commit got no answer, nor did the question for its outcome: %s",
				ErrUnknown, errors.Join(failure, unasked).Error())}
			e.reportFailedEnd(ctx, err)
			r.decideInBackground(ctx)
			return nil, false, err
		case committed:
			return receipt, false, e.endAnswered(ctx, true, lost)
		}
		err = fmt.Errorf("%w: %w: the commit got no answer, and all was rolled back: %w", ErrNotApplied, ErrUnavailable, failure)
	}
	e.reportFailedEnd(ctx, err)
	if errors.Is(r.endFailed(ctx, r.effects.free(), e.validity.State().Lost), ErrLost) {
		return r.successorReceipt(ctx, err)
	}
	return nil, false, err
}

// outcome asks for the outcome of a commit without an answer, within a budget.
func (r *Run) outcome(ctx context.Context) (committed bool, err error) {
	e := &r.lease
	l := e.locker
	err = l.call(ctx, send.Terms{Budget: l.cfg.budget, Lasting: true}, &call{quiet: true, do: func(ctx context.Context) (err error) {
		committed, err = r.tx.Outcome(ctx)
		return err
	}})
	if err == nil {
		l.core.recent.note(EventRecovered, e.Key())
	}
	return committed && err == nil, err
}

// decideInBackground asks for the outcome until there is an answer, and then ends the lease by it.
// The commit is never sent again.
func (r *Run) decideInBackground(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	r.lease.end.receipt = nil // it was committed already, or never will be
	r.lease.keepKey(ctx, func(bool) duty.Progress {
		ok, err := r.outcome(ctx)
		switch {
		case err != nil:
		case ok:
			_ = r.lease.endAnswered(ctx, true, nil)
		default:
			// It continues in the background if the store does not answer.
			_ = r.endFailed(ctx, r.effects.free(), r.lease.validity.State().Lost)
		}
		return duty.Progress{Done: err == nil}
	})
}
