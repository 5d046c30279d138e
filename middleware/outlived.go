package middleware

import (
	"context"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/httplatch/httplatch/lock"
)

// outlivedHint tells the developer, once, that a handler may be at work after
// its guard has returned, and freed the key.
type outlivedHint struct{ logged atomic.Bool }

func (h *outlivedHint) log(ctx context.Context, guard *guardLog) {
	if h.logged.Load() || h.logged.Swap(true) {
		return
	}
	guard.mistake(ctx,
		"a handler goes on when its guard has returned and freed the key, so that another request can run at the same time; "+
			"mount http.TimeoutHandler, and any other middleware that answers for a handler that goes on, outside the guard; "+
			"a goroutine that uses the lease of its request behind the answer has none, and needs a lock of its own")
}

// asked looks at a use of a handler's context after its guard has returned. Not
// each is a mistake: a goroutine may carry values on, and the transport of an
// HTTP client may still dial, and an adapter of a router that has put the guard's
// request in the place of its own leaves it to what is mounted outside. It is one
// if a handler looks for a value, or any code for the lease, which is answer.
func (h *outlivedHint) asked(ctx context.Context, guard *guardLog, answer any) {
	if h.logged.Load() {
		return
	}
	if _, lease := answer.(*lock.Lease); lease || insideHandler() {
		h.log(ctx, guard)
	}
}

// insideHandler reports whether a ServeHTTP is under way on this goroutine, which
// something else than a server has started: what a server calls has returned from
// the guard, or serves another request.
func insideHandler() bool {
	var callers [256]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	inside := false
	for {
		frame, more := frames.Next()
		switch {
		case frame.Function == "net/http.serverHandler.ServeHTTP":
			return false
		case strings.HasSuffix(frame.Function, ".ServeHTTP"):
			inside = true
		}
		if !more {
			return inside
		}
	}
}

// answersEarly reports whether next is a TimeoutHandler. One that is mounted
// further in shows itself only if its handler uses its context too late.
func answersEarly(next http.Handler) bool { return reflect.TypeOf(next) == timeoutHandler }

var timeoutHandler = reflect.TypeOf(http.TimeoutHandler(nil, 0, ""))

// lockedRequest is a guard's own copy of a request (see copyOf), and the context
// that its handler gets.
type lockedRequest struct {
	request http.Request
	context lockedContext
}

func (x *lockedRequest) serve(w http.ResponseWriter, next http.Handler) {
	defer x.context.returned.Store(true)
	next.ServeHTTP(w, &x.request)
}

// lockedContext is the context of a handler under a Lock: that of the lease,
// which knows when the guard has returned.
type lockedContext struct {
	context.Context //nolint:containedctx // it is one
	guard           *guard
	key             string      // that is locked
	passing         atomic.Bool // DoNotKeep was called
	returned        atomic.Bool
}

func (c *lockedContext) init(lease context.Context, g *guard, key string) {
	c.Context, c.guard, c.key = lease, g, key
}

func (c *lockedContext) Value(key any) any {
	if _, ok := key.(lockedKey); ok {
		return c
	}
	answer := c.Context.Value(key)
	if c.returned.Load() && !internal(key) {
		c.guard.outlived.asked(c.Context, &c.guard.guardLog, answer)
	}
	return answer
}

// internal reports whether key is that by which package context finds out how to
// end a context, which it may have to do at any time.
func internal(key any) bool {
	_, is := key.(*int)
	return is
}

// String keeps a context that is printed from showing the fields of a guard that
// is in use.
func (c *lockedContext) String() string { return "middleware.Lock.Context" }
