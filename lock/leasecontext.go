package lock

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/internal/cancelctx"
)

type leaseKey struct{}

// leaseContext is the context of a lease's work. It is a type of its own so that Lease does not
// export its methods.
type leaseContext Lease

// released is the own context of all leases that ended before they needed one. They share it,
// so it has no values.
var released = func() *cancelctx.Context {
	own := cancelctx.New(context.Background()) //nolint:forbidigo // nothing can end it later
	own.Cancel(nil)
	return own
}()

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

// ownContext returns the context that ends with the lease.
func (e *Lease) ownContext() *cancelctx.Context {
	if own := e.own.Load(); own != nil {
		return own
	}
	own := cancelctx.New(e.parent)
	if !e.own.CompareAndSwap(nil, own) {
		own.Cancel(nil) // another goroutine was faster; the parent forgets this one
	}
	return e.own.Load()
}

// cancel ends the context of the work. The cause is the loss of the lease, or nil because the work
// is over. The first call decides the cause, unless the parent context ended before.
func (e *Lease) cancel(cause error) {
	if cause == nil && e.parent.Err() == nil && e.own.CompareAndSwap(nil, released) {
		return
	}
	e.ownContext().Cancel(cause)
}
