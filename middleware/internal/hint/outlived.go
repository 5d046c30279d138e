package hint

import (
	"context"
	"net/http"
	"reflect"
	"runtime"
	"strings"

	"github.com/httplatch/httplatch/lock"
)

// ValueAfterReturn checks a use of a handler's context, for key, after its guard has returned. Some
// uses are fine: a goroutine may pass values on, the transport of an HTTP client may still dial,
// and the adapter of a router may have left the guard's request to outer middleware. It is a
// mistake if a handler asks for any value, or if other code asks for the lease: answer is then the
// lease.
func (h *Hints) ValueAfterReturn(ctx context.Context, key, answer any) {
	if _, cancels := key.(*int); cancels || h.logged[Outlived].Load() { // package context asks by *int how to end a context
		return
	}
	if _, lease := answer.(*lock.Lease); lease || insideHandler() {
		h.Log(ctx, Outlived, nil)
	}
}

// insideHandler reports whether a ServeHTTP is running on this goroutine that was not started by a
// server. A handler that a server has started has returned from the guard, or serves another
// request.
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

// IsTimeoutHandler reports whether next is a TimeoutHandler, which answers before its handler
// returns. A TimeoutHandler further in is noticed only by a late use of its handler's context.
func IsTimeoutHandler(next http.Handler) bool { return reflect.TypeOf(next) == timeoutHandler }

var timeoutHandler = reflect.TypeOf(http.TimeoutHandler(nil, 0, ""))
