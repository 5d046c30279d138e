package lock

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/internal/endable"
)

type leaseKey struct{}

// leaseContext is the context of a lease's work, from which FromContext finds
// it. It is the lease by another name, which does not give those methods to the
// lease.
//
// What ends, own, is made when it is first asked for. Most work is short and
// never asks, and a context that can end costs more than the rest of a lease:
// it has to register with its parent, and to take the registration back.
type leaseContext Lease

// released is the own context of all leases that ended with their work before
// it was asked for. It knows none of their values.
var released = func() *endable.Context {
	own := endable.New(context.Background()) //nolint:forbidigo // nothing can end it later
	own.Cancel(nil)
	return own
}()

// ending returns the context that ends with e.
func (e *Lease) ending() *endable.Context {
	if own := e.own.Load(); own != nil {
		return own
	}
	own := endable.New(e.parent)
	if !e.own.CompareAndSwap(nil, own) {
		own.Cancel(nil) // another was faster, and this one's parent may forget it
	}
	return e.own.Load()
}

// cancel ends the context of the work: with the cause of its loss, or with nil
// because it is over. The first call decides, and if its parent has ended
// before, that has.
func (e *Lease) cancel(cause error) {
	if cause == nil && e.parent.Err() == nil && e.own.CompareAndSwap(nil, released) {
		return
	}
	e.ending().Cancel(cause)
}

// Done and Err look at the clock, and do not rely on the timer alone: in a
// process that was paused for longer than its lease, the work may well come to
// run before any timer does, and must not find a living context then.
func (c *leaseContext) Done() <-chan struct{} {
	e := (*Lease)(c)
	e.checkValidity()
	return e.ending().Done()
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
		// The lease of a receipt protects no resource: a fence of it, say, would
		// always be newer than that of the lock inside or outside of it.
		if c.record == nil {
			return (*Lease)(c)
		}
	case runKey:
		if c.record != nil {
			return c.record.run
		}
	}
	own := c.own.Load()
	switch own {
	case nil:
	case released:
		// It answers package context alone, which asks by Value for what ends a context
		// and why.
		if v := own.Value(key); v != nil {
			return v
		}
	default:
		return own.Value(key)
	}
	return c.parent.Value(key)
}

// String keeps a context that is printed, as mocks do with their arguments, from
// showing the fields of a lease that is in use.
func (c *leaseContext) String() string { return "lock.Lease.Context" }

// FromContext returns the lease under which the code that was given ctx runs:
// of the innermost [Locker.Do] or middleware.Lock. ok is false if nothing
// protects this code: there is none, or the store was down and the Locker was
// configured to go on without ([WithFailOpen]).
func FromContext(ctx context.Context) (lease *Lease, ok bool) {
	lease, ok = ctx.Value(leaseKey{}).(*Lease)
	return lease, ok
}
