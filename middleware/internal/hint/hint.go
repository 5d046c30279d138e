// Package hint logs hints to the developer about a guard that is mounted or used in a wrong way.
package hint

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/httplatch/httplatch/internal/mistake"
	"github.com/httplatch/httplatch/internal/ratelog"
	"github.com/httplatch/httplatch/lock"
)

// Hints are the hints of one guard. Init must be called first. All methods are safe for
// concurrent use.
type Hints struct {
	Name string // of the guard

	logger  *slog.Logger
	witness mistake.Witness // nil, except in a test by latchtest.Incident
	logged  [len(texts)]atomic.Bool
	rare    ratelog.Log
}

// Hint is a case of a wrong use.
type Hint int

// The hints. The text of each says what to do.
const (
	LockOutside     Hint = iota // a Lock is outside of a guard that keeps answers
	MountedTwice                // a guard is inside of itself
	Outlived                    // a handler may run after its guard has returned and freed the key
	AnsweredOutside             // a framework writes the answer outside of the guard
	NoAnswer                    // a handler has returned without an answer
	KeyMissing                  // a request has no key: the error says where it was expected
	BodyConsumed                // a body was read outside of the guard
	FunctionFailed              // a function that the guard was given has failed
	AnswerTooLong               // an answer is too long for its transaction
)

const unansweredCure = "; in gin and echo, mount guards by the modules middleware/gin and middleware/echo; " +
	"in fiber, as docs/routers.md says, since adaptor.HTTPMiddleware runs the handler unguarded; " +
	"elsewhere, have the answer written to the ResponseWriter that the guard hands on"

// texts has the text of each hint. A hint is logged as an error, and once for each guard, unless its row says otherwise.
var texts = [...]struct {
	text    string
	unsafe  bool // the guard, as it is mounted, protects nothing: a test that watches for it fails
	warning bool
	again   bool // logged once a minute
}{
	LockOutside: {text: "a Lock is mounted outside this guard, so that repeats are refused by the lock and its cool-down " +
		"instead of getting the first answer; mount Idempotent and Dedupe outside Lock: " +
		"authentication, then Idempotent, then Lock, then the handler"},
	MountedTwice: {unsafe: true, text: "this guard is mounted twice around one handler, on the same key; the inner one does nothing, " +
		"and its own settings do not apply; mount it once, on the route or around the router"},
	Outlived: {unsafe: true, text: "a handler goes on when its guard has returned and freed the key, so that another request can run at the same time; " +
		"mount http.TimeoutHandler, and any other middleware that answers for a handler that goes on, outside the guard; " +
		"a goroutine that uses the lease of its request behind the answer has none, and needs a lock of its own"},
	AnsweredOutside: {unsafe: true, text: "a handler returned without an answer, and a framework outside of the guard has answered, or is going to: " +
		"the guard does not see whether the request failed, and keeps no answer" + unansweredCure},
	NoAnswer: {warning: true, text: "a handler returned without an answer, which is an empty 200, also for repeats; " +
		"if it was to be answered outside of the guard, repeats get the wrong answer" + unansweredCure},
	KeyMissing: {warning: true, text: "a request was refused because it has no key; if all are, the error says where the key was expected"},
	BodyConsumed: {text: "a request was refused because its body, which says what it is, or a part of it, was read before the guard; " +
		"mount the guard outside of what reads the body, or put the body back there " +
		"(r.Body = io.NopCloser(bytes.NewReader(body)), and r.ContentLength if the body has another length), " +
		"or name what to compare instead (WithFingerprint)"},
	FunctionFailed: {again: true, text: "requests are refused because a function that the guard was given failed"},
	AnswerTooLong: {again: true, text: "an answer was replaced by 500, and its work rolled back; raise the second limit of WithBodyLimits, " +
		"or serve what streams, or takes over its connection, by a Locker without WithTransaction"},
}

// Init takes logger and witness from the Locker of the guard.
func (h *Hints) Init(l *lock.Locker) {
	h.logger = l.Logger()
	h.witness, _ = l.Store().(mistake.Witness)
}

// Log logs a hint, if it is due, with err unless that is nil.
func (h *Hints) Log(ctx context.Context, hint Hint, err error) {
	row := &texts[hint]
	if !row.again && h.logged[hint].Swap(true) {
		return
	}
	attrs := []slog.Attr{slog.String("name", h.Name)}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	text, level := row.text, slog.LevelError
	if row.again {
		due, silent := h.rare.Due(text)
		if !due {
			return
		}
		text += "; others are not logged for a minute"
		attrs = append(attrs, slog.Int("repeated", silent))
	}
	if row.warning {
		level = slog.LevelWarn
	}
	h.logger.LogAttrs(ctx, level, "httplatch: "+text, attrs...)
	if row.unsafe && h.witness != nil {
		h.witness.Mistake(h.Name, text)
	}
}
