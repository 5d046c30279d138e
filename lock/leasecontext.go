package lock

import (
	"context"

	"github.com/httplatch/httplatch/internal/early"
	"github.com/httplatch/httplatch/internal/failopen"
)

type leaseKey struct{}

// leaseContext is the context of a lease, from which FromContext finds it.
type leaseContext struct {
	context.Context //nolint:containedctx // it is one
	lease           *Lease
}

func (c *leaseContext) Value(key any) any {
	switch key.(type) {
	case leaseKey:
		// The lease of a receipt protects no resource: a fence of it, say, would
		// always be newer than that of the lock inside or outside of it.
		if c.lease.run == nil {
			return c.lease
		}
	case failopen.Key:
		// It was for this acquire. Work inside must not take it for its own.
		return nil
	case runKey, early.Key:
		if c.lease.run != nil {
			return c.lease.run
		}
	}
	return c.Context.Value(key)
}

// Done and Err look at the clock, and do not rely on the timer alone: in a
// process that was paused for longer than its lease, the work may well come to
// run before any timer does, and must not find a living context then.
func (c *leaseContext) Done() <-chan struct{} {
	c.lease.checkValidity()
	return c.Context.Done()
}

func (c *leaseContext) Err() error {
	c.lease.checkValidity()
	return c.Context.Err()
}

// FromContext returns the lease under which the code that was given ctx runs:
// of the innermost [Locker.Do] or middleware.Lock. ok is false if nothing
// protects this code: there is none, or the store was down and the middleware
// was told to go on without (WithFailOpen).
func FromContext(ctx context.Context) (lease *Lease, ok bool) {
	lease, ok = ctx.Value(leaseKey{}).(*Lease)
	return lease, ok
}
