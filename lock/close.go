package lock

import (
	"context"
	"fmt"

	"github.com/httplatch/httplatch/lock/internal/cleanup"
)

// Close ends the Locker and those made from it by [Locker.With]: it refuses new
// claims with [ErrClosed], waits for the holders of leases until ctx ends, and
// completes what is unfinished in the background.
//
// When ctx ends before the holders are done, their contexts end with a cause
// that matches ErrClosed, and one budget is left to them. A lease whose work
// does not return even then is not released, since that would let another
// process in at the same time: it is no longer renewed and lapses. Close then returns
// an error that says what is left. The store stays open. Close may be called
// again. Give ctx a deadline: while the store does not answer, clean-ups do not
// end by themselves.
func (l *Locker) Close(ctx context.Context) error {
	c := l.core
	c.owners.Close()
	c.cleaner.Advance(cleanup.Expedited)
	c.checks.Close()
	c.closeOnce.Do(func() { close(c.closing) })
	err := error(nil)
	if c.owners.Wait(ctx) > 0 {
		err = context.Cause(ctx)
		for _, e := range c.keys.All() {
			(*Lease)(e).abort()
		}
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), l.cfg.budget)
		defer cancel()
	}
	c.cleaner.Advance(cleanup.Draining)
	working := c.owners.Wait(ctx)
	unfinished := c.cleaner.Tasks().Wait(ctx)
	calls := c.sender.Calls.Wait(ctx)
	c.cleaner.Stop()
	for _, e := range c.keys.All() {
		(*Lease)(e).abort() // what the cleaner gave up may still be renewed
	}
	c.keys.ForgetAlarms()
	if working+unfinished+calls == 0 {
		return nil
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("lock: closed with %d leases still worked under, %d clean-ups and %d store calls unanswered: %w",
		working, unfinished, calls, err)
}

// abort ends the context of a lease that has not ended at Close, and its
// renewal, so that it lapses.
func (e *Lease) abort() {
	if e.local.Granted() {
		e.validity.Halt()
		e.cancel(fmt.Errorf("%w while the lease was held", ErrClosed))
	}
}
