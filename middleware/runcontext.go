package middleware

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/internal/cancelctx"
)

// runContext is the context of a handler. It ends with the lease until the
// answer begins to leave, and with the client's request from then on: the
// outcome is recorded and the lease over by then, and nothing but the client's
// presence keeps a stream of events from going on for ever.
type runContext struct {
	lease  context.Context //nolint:containedctx // what this one follows first
	client context.Context //nolint:containedctx // and then
	ran    *ran

	// A context with its own end costs more than all the rest, and few
	// handlers ask for the end. It is made for those that do.
	own  atomic.Pointer[cancelctx.Context]
	mu   sync.Mutex
	stop func() bool // following what own follows

	returned atomic.Bool // the guard has
}

func (c *runContext) init(lease, client context.Context, r *ran) {
	c.lease, c.client, c.ran = lease, client, r
}

// attach lets c end with the client's request.
func (c *runContext) attach() { c.follow(c.client) }

// detach lets c end with the lease.
func (c *runContext) detach() { c.follow(c.lease) }

// end ends c, as net/http ends the context of a request that was served.
func (c *runContext) end() {
	c.returned.Store(true)
	if own := c.own.Load(); own != nil {
		c.mu.Lock()
		c.stop()
		c.mu.Unlock()
		own.Cancel(nil)
	}
}

func (c *runContext) follow(parent context.Context) *cancelctx.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.own.Load()
	if own == nil {
		own = cancelctx.New(context.WithoutCancel(c.lease))
		c.own.Store(own)
	} else {
		c.stop()
	}
	c.stop = context.AfterFunc(parent, func() { own.Cancel(context.Cause(parent)) })
	if parent.Err() != nil {
		own.Cancel(context.Cause(parent)) // at once, and not on the goroutine that AfterFunc started
	}
	return own
}

// Deadline returns none: neither a lease nor a client's presence has one.
func (c *runContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

func (c *runContext) Done() <-chan struct{} {
	own := c.own.Load()
	if own == nil {
		own = c.follow(c.lease)
	}
	return own.Done()
}

func (c *runContext) Err() error { return c.current().Err() }

func (c *runContext) Value(key any) any {
	if _, ok := key.(ranKey); ok {
		return c.ran
	}
	answer := c.current().Value(key)
	if c.returned.Load() && !internal(key) {
		c.ran.guard.outlived.asked(c.lease, &c.ran.guard.guardLog, answer)
	}
	return answer
}

func (c *runContext) current() context.Context {
	if own := c.own.Load(); own != nil {
		return own.Context
	}
	return c.lease
}

// String keeps a context that is printed, as mocks do with their arguments, from
// being read while it is in use.
func (*runContext) String() string { return "middleware.Idempotent.Context" }
