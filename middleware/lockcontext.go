package middleware

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// lockContext is the context of a guarded request: the client's until there is a
// lease, and the lease's from then on. So one copy of the request is enough, for
// the key function and for the handler.
type lockContext struct {
	client context.Context            //nolint:containedctx // what this one follows first
	lease  atomic.Pointer[lock.Lease] // and then
}

func (c *lockContext) current() context.Context {
	if lease := c.lease.Load(); lease != nil {
		return lease.Context()
	}
	return c.client
}

func (c *lockContext) Deadline() (deadline time.Time, ok bool) { return c.current().Deadline() }
func (c *lockContext) Done() <-chan struct{}                   { return c.current().Done() }
func (c *lockContext) Err() error                              { return c.current().Err() }
func (c *lockContext) Value(key any) any                       { return c.current().Value(key) }
