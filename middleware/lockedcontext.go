package middleware

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/httplatch/httplatch/lock"
)

// lockedContext is the context of a handler under a Lock: the context of its lease, which also
// notes the return of the guard.
type lockedContext struct {
	context.Context //nolint:containedctx // it is one

	guard     *guardCore
	lease     leaseOrSet // a lease, or the set of LockAll
	doNotKeep atomic.Bool
	returned  atomic.Bool
	unknown   atomic.Bool // a service called through Upstream may still be working
}

func (c *lockedContext) init(g *guardCore, lease leaseOrSet) {
	c.Context, c.guard, c.lease = lease.Context(), g, lease
}

type lockedKey struct{}

// lockedOf returns the innermost locked context of ctx, nil if there is none.
func lockedOf(ctx context.Context) *lockedContext {
	c, _ := ctx.Value(lockedKey{}).(*lockedContext)
	return c
}

// holds reports whether the guard of c has key. If the guard has permits, key ends with "#", without
// the number of a slot.
func (c *lockedContext) holds(key string) bool {
	switch h := c.lease.(type) {
	case *lock.Set:
		return slices.Contains(h.Keys(), key)
	case *lock.Lease:
		return h.Key() == key || strings.HasSuffix(key, "#") && strings.HasPrefix(h.Key(), key)
	}
	return false
}

// within reports whether the handler of c, or one around it, holds this key of store. A context
// that has ended does not count: its lease was released or lost.
func (c *lockedContext) within(key string, store lock.Store) bool {
	for ; c != nil; c = lockedOf(c.Context) {
		if c.holds(key) && c.Err() == nil && sameStore(c.guard.locker.Store(), store) {
			return true
		}
	}
	return false
}

func (c *lockedContext) Value(key any) any {
	if _, ok := key.(lockedKey); ok {
		return c
	}
	value := c.Context.Value(key)
	if c.returned.Load() {
		c.guard.hints.ValueAfterReturn(c.Context, key, value)
	}
	return value
}

// String is for code that prints a context, as mocks do with their arguments. Without it, such
// code would read the fields of a guard in use.
func (c *lockedContext) String() string { return "middleware.Lock.Context" }

// lockedRequest is a guard's own copy of a request, and the context of its handler, in one
// allocation.
type lockedRequest struct {
	request http.Request
	context lockedContext
}

func (x *lockedRequest) serve(w http.ResponseWriter, next http.Handler) {
	defer x.context.returned.Store(true)
	next.ServeHTTP(w, &x.request)
}
