package lock

import (
	"context"
	"fmt"

	"github.com/httplatch/httplatch/lock/internal/duty"
	"github.com/httplatch/httplatch/lock/internal/validity"
)

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
