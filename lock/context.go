package lock

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/validity"
)

// leaseContext is the context of a lease's work. It is a type of its own so that Lease does not
// export its methods.
type leaseContext Lease

// Context returns a context that ends when the lease does. If the lease is lost, it ends no
// later than the validity, with a cause that matches [ErrLost]. Otherwise it ends at the
// release. It is derived from the context given to Acquire. For work that runs unprotected
// ([WithFailOpen]), it ends only with the context given to Acquire, and [FromContext] does not
// find the lease in it.
func (e *Lease) Context() context.Context {
	if e == nil {
		return context.Background() //nolint:forbidigo // no lease, so it has no end
	}
	if e.local.Unprotected() {
		return e.parent
	}
	return (*leaseContext)(e)
}

type leaseKey struct{}

// FromContext returns the lease of the innermost [Locker.Do] or middleware.Lock around the code
// that was given ctx. ok is false if no lease protects this code: there is no such call, or the
// store was down and the work runs unprotected ([WithFailOpen]). Under a [Set] it is the lease
// on the last of the sorted keys; see [SetFromContext].
func FromContext(ctx context.Context) (lease *Lease, ok bool) {
	lease, ok = ctx.Value(leaseKey{}).(*Lease)
	return lease, ok
}

// Done and Err check the clock, and do not rely on the timer alone: in a process that was
// paused for longer than its lease, the work may continue before any timer runs, and must find
// that its context has ended.
func (c *leaseContext) Done() <-chan struct{} {
	e := (*Lease)(c)
	e.checkValidity()
	return e.ownContext().Done()
}

func (c *leaseContext) Err() error {
	e := (*Lease)(c)
	e.checkValidity()
	if own := e.own.Load(); own != nil {
		return own.Err()
	}
	return e.parent.Err()
}

func (c *leaseContext) Deadline() (deadline time.Time, ok bool) { return c.parent.Deadline() }

func (c *leaseContext) Value(key any) any {
	switch key.(type) {
	case leaseKey:
		// The lease of Once protects no resource. Its fence, for example, would always be
		// newer than the fence of a lock inside or outside of it.
		if c.run == nil {
			return (*Lease)(c)
		}
	case runKey:
		if c.run != nil {
			return c.run
		}
	}
	own := c.own.Load()
	switch own {
	case nil:
	case released:
		// It has values for package context only, which asks Value for a cancelable parent
		// and its cause.
		if v := own.Value(key); v != nil {
			return v
		}
	default:
		return own.Value(key)
	}
	return c.parent.Value(key)
}

// String is for code that prints a context, as mocks do with their arguments. Without it, such
// code would read the fields of a lease in use.
func (c *leaseContext) String() string { return "lock.Lease.Context" }

// checkValidity ends the lease's context if the validity of the lease is over, and its work is not. The caller may
// hold locks of the work, and an observer may need the same locks. So another goroutine reports
// the loss.
func (e *Lease) checkValidity() {
	switch valid := e.validity.State(); {
	case valid.Lost != nil:
		e.cancel(valid.Lost) // the goroutine that noted the loss may not have cancelled it yet
	case valid.Renews && clock.Now() >= valid.Until && !e.outlived():
		report, _ := e.markLost(nil)
		go report()
	}
}

// outlived reports whether the end of the validity changes nothing: the work is over, and its record outlives the
// lease. The key stays taken in this process until the settle is answered.
func (e *Lease) outlived() bool {
	return e.run != nil && e.validity.State().Phase == validity.Ending
}

// lose ends the lease before its work is over. Its entry no longer has a holder.
func (e *Lease) lose(why *loss) error {
	report, lost := e.markLost(why)
	report()
	return lost
}

// markLost notes the loss and ends the lease's context. Without a reason, the validity is over. report follows: it frees
// the key, and reports the loss, unless an earlier call has noted one. That call may not have ended the context yet.
func (e *Lease) markLost(why *loss) (report func(), lost error) {
	l := e.locker
	if why == nil {
		if why = errExpired; e.validity.State().Capped {
			why = heldTooLong(l.cfg.maxHold)
		}
	}
	l.core.active.Join() // first: once the loss is noted the work may end, and Close return
	lost, first := e.validity.Lose(why)
	if lost != nil {
		e.cancel(lost)
	}
	return func() {
		defer l.core.active.Leave()
		if !first {
			return
		}
		if e.run == nil {
			// A renewal that was applied and not answered keeps the entry for up to one lease. The
			// entry must not refuse a caller for that long, so it is removed. An entry of Once
			// stays: it says that the outcome is unknown.
			e.addOrphan(EventReaped, 0)
		}
		e.local.Leave(nil)
		l.core.recent.note(EventLost, e.Key())
		ctx, held := e.Context(), e.claim.grantedAt.Since()
		l.emit(ctx, e, EventLost, held, why)
		l.logLost(ctx, e, held, why)
	}, lost
}
