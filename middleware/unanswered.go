package middleware

import (
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
)

// unansweredHint reports to the developer, once, that a handler has returned without an
// answer that its guard has seen.
type unansweredHint struct{ logged atomic.Bool }

func (h *unansweredHint) first() bool { return !h.logged.Load() && !h.logged.Swap(true) }

// outside logs that the answer is outside of the guard.
func (h *unansweredHint) outside(ctx context.Context, guard *guardLog) {
	if h.first() {
		guard.mistake(ctx, outsideMessage+unansweredCure)
	}
}

// silent logs that the answer says nothing at all.
func (h *unansweredHint) silent(ctx context.Context, guard *guardLog) {
	if h.first() {
		guard.log(ctx, slog.LevelWarn, silentMessage+unansweredCure)
	}
}

const (
	unansweredCure = "; in gin and echo, mount guards by the modules middleware/gin and middleware/echo; " +
		"in fiber, as docs/fiber.md says, since adaptor.HTTPMiddleware runs the handler unguarded; " +
		"elsewhere, have the answer written to the ResponseWriter that the guard hands on"
	outsideMessage = "a handler returned without an answer, and a framework outside of the guard has answered, or is going to: " +
		"the guard does not see whether the request failed, and keeps no answer"
	silentMessage = "a handler returned without an answer, which is an empty 200, also for repeats; " +
		"if it was to be answered outside of the guard, repeats get the wrong answer"
)

// unanswered completes an answer of which the handler has written nothing. Mostly it is an empty
// 200, as in net/http. But a failure that is written outside of the guard must not become a success:
// there the answer is what the writer outside says, and cannot be replayed.
func (a *answer) unanswered(ctx context.Context) {
	status, outside := answeredOutside(a.out)
	g := a.ran.guard
	switch {
	case a.ran.passing.Load():
		a.status, a.gone, a.open = http.StatusInternalServerError, true, true
	case outside:
		a.begin(status)
		a.gone, a.open = true, true
		g.unanswered.outside(ctx, &g.guardLog)
	default:
		a.begin(status)
		a.hintAtSilence(ctx)
	}
}

// hintAtSilence logs that the answer says nothing at all.
func (a *answer) hintAtSilence(ctx context.Context) {
	if len(a.header) == len(a.before) {
		g := a.ran.guard
		g.unanswered.silent(ctx, &g.guardLog)
	}
}

// unanswered completes what w has seen of the answer that the handler has written nothing of.
func (w *statusWriter) unanswered(ctx context.Context, g *guard) {
	if w.status != 0 {
		return
	}
	if status, outside := answeredOutside(w.ResponseWriter); outside {
		w.status = status
		g.unanswered.outside(ctx, &g.guardLog)
	}
}

// answeredOutside reports whether the answer of a handler that has written nothing to its guard is
// outside of it: w, or a writer that it wraps, was written to, or belongs to a framework that answers for
// its handlers later. The status is as far as it is known, else 200.
func answeredOutside(w http.ResponseWriter) (status int, outside bool) {
	for {
		switch t := w.(type) {
		case *answer: // of a guard further out
			if t.status != 0 {
				return t.status, true
			}
		case *statusWriter:
			if t.status != 0 {
				return t.status, true
			}
		case delaying:
			return t.Status(), true
		case interface { // negroni
			Status() int
			Written() bool
		}:
			if t.Written() {
				return t.Status(), true
			}
		case interface { // chi
			Status() int
			BytesWritten() int
		}:
			if t.Status() != 0 {
				return t.Status(), true
			}
		default:
			switch {
			case answersLater(t):
				return http.StatusOK, true
			case isOfEcho(t):
				if status := reflect.Indirect(reflect.ValueOf(t)).FieldByName("Status"); status.CanInt() && status.Int() != 0 {
					return int(status.Int()), true
				}
				return http.StatusOK, true
			}
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return http.StatusOK, false
		}
		w = wrapper.Unwrap()
	}
}

// delaying is a writer of gin, which sends a status when all middleware has returned.
type delaying interface {
	Status() int
	WriteHeaderNow()
}

// delays reports whether w is a writer of gin. An adapter that writes its implied 200 to the guard has left
// that to be found out.
func delays(w http.ResponseWriter) bool { _, is := w.(delaying); return is }

// isOfEcho reports whether w is an echo.Response, whose state is in fields.
func isOfEcho(w http.ResponseWriter) bool {
	t := reflect.TypeOf(w)
	return t.String() == "*echo.Response" && strings.HasPrefix(t.Elem().PkgPath(), "github.com/labstack/echo/")
}

// answersLater reports whether w belongs to fiber's adaptor, whose handlers run when the guard
// has returned.
func answersLater(w http.ResponseWriter) bool {
	return reflect.TypeOf(w).String() == "*fasthttpadaptor.writer"
}
