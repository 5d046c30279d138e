package middleware

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/httplatch/httplatch/lock"
)

// locked is one request under a Lock: the guard's own copy, and the context of its handler, which is the
// context of the lease, in one allocation.
type locked struct {
	context.Context //nolint:containedctx // it is one; nil before the claim

	request   http.Request
	guard     *guardCore
	lease     leaseOrSet // a lease, or the set of LockAll
	doNotKeep atomic.Bool
	returned  atomic.Bool
	unknown   atomic.Bool // a service called through Upstream may still be working
}

// serve runs next under lease.
func (c *locked) serve(w http.ResponseWriter, next http.Handler) {
	defer c.returned.Store(true)
	next.ServeHTTP(w, &c.request)
}

type lockedKey struct{}

// lockedOf returns the innermost locked request of ctx, nil if there is none.
func lockedOf(ctx context.Context) *locked {
	c, _ := ctx.Value(lockedKey{}).(*locked)
	return c
}

// holds reports whether the guard of c has key. If the guard has permits, key ends with "#", without
// the number of a slot.
func (c *locked) holds(key string) bool {
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
func (c *locked) within(key string, store lock.Store) bool {
	for ; c != nil; c = lockedOf(c.Context) {
		if c.holds(key) && c.Err() == nil && sameStore(c.guard.locker.Store(), store) {
			return true
		}
	}
	return false
}

func (c *locked) Value(key any) any {
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
func (c *locked) String() string { return "middleware.Lock.Context" }
