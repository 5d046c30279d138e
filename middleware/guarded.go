package middleware

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/httplatch/httplatch/internal/guardkey"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// guarded is one request behind a guard: the guard's own copy, which the handler gets, and, behind a
// Lock, the context of the handler. A [run] has its own context. A key function that reads the body
// replaces it, so the guard needs a copy: the caller's request must not change.
type guarded struct {
	context.Context //nolint:containedctx // it is one: of the lease, nil before the claim

	guard   *guard
	outer   *guarded // the same request behind the guard further out, nil if there is none
	run     *run     // behind Idempotent or Dedupe; nil behind Lock
	request http.Request
	keys    []string  // of the lease, or of the record
	key     [1]string // has room for keys

	marks    record.Marks
	unknown  atomic.Bool // a service called through Upstream may still be working
	returned atomic.Bool // the handler has returned, and its context may not be used any more
}

type guardedKey struct{}

// guardedOf returns the request of ctx behind its innermost guard, nil if there is none.
func guardedOf(ctx context.Context) *guarded {
	x, _ := ctx.Value(guardedKey{}).(*guarded)
	return x
}

// runOf returns the innermost run with a lease that ctx belongs to, nil if there is none.
func runOf(ctx context.Context) *run {
	for x := guardedOf(ctx); x != nil; x = x.outer {
		if x.leased() {
			return x.run
		}
	}
	return nil
}

// leased reports whether x has a run with a lease. A guard that fails open has a run without one.
func (x *guarded) leased() bool { return x.run != nil && x.run.Run != nil }

// heldOutside reports whether a guard of the same kind further out has this key of the same store. A
// request that was served, or whose context has ended, does not count: its lease was released or lost.
func (x *guarded) heldOutside(key string) bool {
	for o := x.outer; o != nil; o = o.outer {
		var ctx context.Context = o
		if o.run != nil {
			ctx = o.run
		}
		if (o.run == nil) == (x.run == nil) && slices.Contains(o.keys, key) && !o.returned.Load() && ctx.Err() == nil &&
			sameStore(o.guard.locker.Store(), x.guard.locker.Store()) {
			return true
		}
	}
	return false
}

// serveUnprotected runs next without a lease. For handlers its context is no guard's. Guards further in find x, so
// that they do not ask for its keys again.
func (x *guarded) serveUnprotected(w http.ResponseWriter, next http.Handler) {
	defer x.returned.Store(true)
	x.Context = context.WithoutCancel(x.request.Context())
	x.request = *x.request.WithContext(context.WithValue(x.request.Context(), guardkey.Outer{}, x)) // no handler has seen it yet
	next.ServeHTTP(w, &x.request)
}

// handBack copies from own, the guard's request, to r, its caller's, the files of a multipart form, because
// net/http removes only the files of r, and the pattern of a router inside, for an access log outside.
// Nothing else changes, because other goroutines may still read r.
func handBack(r, own *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = own.MultipartForm
	}
	if r.Pattern != own.Pattern {
		r.Pattern = own.Pattern
	}
}

// markCutOff notes, in x and behind the guards further out, that the end of a streamed answer does not
// show whether it is whole. x may be nil.
func (x *guarded) markCutOff() {
	for ; x != nil; x = x.outer {
		x.marks.CutOff.Store(true)
	}
}

func (x *guarded) Value(key any) any { return x.value(x.Context, key) }

// value returns the value of the handler's context for key. from has the values that are not the guard's.
func (x *guarded) value(from context.Context, key any) any {
	switch key.(type) {
	case guardedKey, guardkey.Outer:
		return x
	}
	value := from.Value(key)
	if x.returned.Load() {
		x.guard.hints.ValueAfterReturn(x.Context, key, value)
	}
	return value
}

// String is for code that prints a context, as mocks do with their arguments. Without it, such
// code would read the fields of a guard in use.
func (x *guarded) String() string { return "middleware.Context" }
