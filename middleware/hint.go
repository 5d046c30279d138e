package middleware

import (
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync"

	"github.com/httplatch/httplatch/internal/mistake"
	"github.com/httplatch/httplatch/internal/ratelog"
	"github.com/httplatch/httplatch/lock"
)

// hint is the text for the developer about a guard that is mounted or used in a wrong way. It is logged once for each
// guard, as an error, unless it says otherwise.
type hint struct {
	text    string
	unsafe  bool // the guard, as it is mounted, protects nothing: a test that watches for it fails
	warning bool
	again   bool // logged once a minute
}

const unansweredCure = "; in gin and echo, mount guards by the modules middleware/gin and middleware/echo; " +
	"in fiber, as docs/routers.md says, since adaptor.HTTPMiddleware runs the handler unguarded; " +
	"elsewhere, have the answer written to the ResponseWriter that the guard hands on"

var (
	lockOutside = hint{text: "a Lock is mounted outside this guard, so that repeats are refused by the lock and its cool-down " +
		"instead of getting the first answer; mount Idempotent and Dedupe outside Lock: " +
		"authentication, then Idempotent, then Lock, then the handler"}
	mountedTwice = hint{unsafe: true, text: "this guard is mounted twice around one handler, on the same key; the inner one does nothing, " +
		"and its own settings do not apply; mount it once, on the route or around the router"}
	outlived = hint{unsafe: true, text: "a handler goes on when its guard has returned and freed the key, so that another request can run at the same time; " +
		"mount http.TimeoutHandler, and any other middleware that answers for a handler that goes on, outside the guard; " +
		"a goroutine that uses the lease of its request behind the answer has none, and needs a lock of its own"}
	answeredOutside = hint{unsafe: true, text: "a handler returned without an answer, and a framework outside of the guard has answered, or is going to: " +
		"the guard does not see whether the request failed, and keeps no answer" + unansweredCure}
	noAnswer = hint{warning: true, text: "a handler returned without an answer, which is an empty 200, also for repeats; " +
		"if it was to be answered outside of the guard, repeats get the wrong answer" + unansweredCure}
	keyMissing   = hint{warning: true, text: "a request was refused because it has no key; if all are, the error says where the key was expected"}
	bodyConsumed = hint{text: "a request was refused because its body, which says what it is, or a part of it, was read before the guard; " +
		"mount the guard outside of what reads the body, or put the body back there " +
		"(r.Body = io.NopCloser(bytes.NewReader(body)), and r.ContentLength if the body has another length), " +
		"or name what to compare instead (WithFingerprint)"}
	functionFailed = hint{again: true, text: "requests are refused because a function that the guard was given failed"}
	answerTooLong  = hint{again: true, text: "an answer was replaced by 500, and its work rolled back; raise the second limit of WithBodyLimits, " +
		"or serve what streams, or takes over its connection, by a Locker without WithTransaction"}
)

// hints are the hints of one guard.
type hints struct {
	name   string // of the guard
	locker *lock.Locker
	logged sync.Map // of *hint
	often  ratelog.Log
}

func (h *hints) log(ctx context.Context, this *hint, err error) {
	if !this.again {
		if _, logged := h.logged.LoadOrStore(this, true); logged {
			return
		}
	}
	attrs := []slog.Attr{slog.String("name", h.name)}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	text, level := this.text, slog.LevelError
	if this.again {
		due, silent := h.often.Due(text)
		if !due {
			return
		}
		text += "; others are not logged for a minute"
		attrs = append(attrs, slog.Int("repeated", silent))
	}
	if this.warning {
		level = slog.LevelWarn
	}
	h.locker.Logger().LogAttrs(ctx, level, "httplatch: "+text, attrs...)
	if witness, watches := h.locker.Store().(mistake.Witness); watches && this.unsafe {
		witness.Mistake(h.name, text)
	}
}

// valueAfterReturn checks a use of a handler's context, for key, after the guard has returned. A goroutine may pass
// values on, the transport of a client may still dial, and the adapter of a router may have left the guard's request
// to outer middleware. It is a mistake if a handler asks for any value, or other code for the lease: answer is then
// the lease.
func (h *hints) valueAfterReturn(ctx context.Context, key, answer any) {
	_, logged := h.logged.Load(&outlived)
	if _, cancels := key.(*int); cancels || logged { // package context asks by *int how to end a context
		return
	}
	if _, lease := answer.(*lock.Lease); lease || insideHandler() {
		h.log(ctx, &outlived, nil)
	}
}

// insideHandler reports whether a ServeHTTP is running on this goroutine that was not started by a server: a handler
// of a server has returned from the guard, or serves another request.
func insideHandler() bool {
	var callers [256]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	for inside := false; ; {
		frame, more := frames.Next()
		inside = inside || strings.HasSuffix(frame.Function, ".ServeHTTP")
		switch {
		case frame.Function == "net/http.serverHandler.ServeHTTP":
			return false
		case !more:
			return inside
		}
	}
}

// timeoutHandler is the type of a handler that answers before the handler that it wraps returns.
var timeoutHandler = reflect.TypeOf(http.TimeoutHandler(nil, 0, ""))
