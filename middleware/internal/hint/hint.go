// Package hint logs hints to the developer about a guard that is mounted or used in a wrong way.
// Each hint is logged once for each guard, because every request can repeat it.
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

	lockOutside, mountedTwice, outlived, unanswered, keyMissing, bodyConsumed once

	rare ratelog.Log
}

// Init takes logger and witness from the Locker of the guard.
func (h *Hints) Init(l *lock.Locker) {
	h.logger = l.Logger()
	h.witness, _ = l.Store().(mistake.Witness)
}

// LockOutside reports a Lock outside of a guard that keeps answers.
func (h *Hints) LockOutside(ctx context.Context) {
	if !h.lockOutside.first() {
		return
	}
	h.log(ctx, slog.LevelError,
		"a Lock is mounted outside this guard, so that repeats are refused by the lock and its cool-down "+
			"instead of getting the first answer; mount Idempotent and Dedupe outside Lock: "+
			"authentication, then Idempotent, then Lock, then the handler")
}

// MountedTwice reports a guard inside of itself. The inner guard does nothing: otherwise it would
// refuse every request because of the entry that the outer guard holds.
func (h *Hints) MountedTwice(ctx context.Context) {
	if !h.mountedTwice.first() {
		return
	}
	h.mistake(ctx,
		"this guard is mounted twice around one handler, on the same key; the inner one does nothing, "+
			"and its own settings do not apply; mount it once, on the route or around the router")
}

// KeyMissing reports a request without a key. err, the error of a key function, names the place
// where the key was expected.
func (h *Hints) KeyMissing(ctx context.Context, err error) {
	if !h.keyMissing.first() {
		return
	}
	h.log(ctx, slog.LevelWarn,
		"a request was refused because it has no key; if all are, the error says where the key was expected",
		slog.Any("error", err))
}

// BodyConsumed reports a body that was read outside of the guard.
func (h *Hints) BodyConsumed(ctx context.Context, err error) {
	if !h.bodyConsumed.first() {
		return
	}
	h.log(ctx, slog.LevelError,
		"a request was refused because its body, which says what it is, or a part of it, was read before the guard; "+
			"mount the guard outside of what reads the body, or put the body back there "+
			"(r.Body = io.NopCloser(bytes.NewReader(body)), and r.ContentLength if the body has another length), "+
			"or name what to compare instead (WithFingerprint)",
		slog.Any("error", err))
}

// FunctionFailed reports a failure of a function that the guard was given, once a minute.
func (h *Hints) FunctionFailed(ctx context.Context, err error) {
	h.logRarely(ctx, "function failed", "requests are refused because a function that the guard was given failed", err)
}

// AnswerTooLong reports an answer that is too long for its transaction, once a minute.
func (h *Hints) AnswerTooLong(ctx context.Context, err error) {
	h.logRarely(ctx, "answer too long", "an answer was replaced by 500, and its work rolled back; raise the second limit of WithBodyLimits, "+
		"or serve what streams, or takes over its connection, by a Locker without WithTransaction", err)
}

const (
	unansweredCure = "; in gin and echo, mount guards by the modules middleware/gin and middleware/echo; " +
		"in fiber, as docs/routers.md says, since adaptor.HTTPMiddleware runs the handler unguarded; " +
		"elsewhere, have the answer written to the ResponseWriter that the guard hands on"
	outsideMessage = "a handler returned without an answer, and a framework outside of the guard has answered, or is going to: " +
		"the guard does not see whether the request failed, and keeps no answer"
	silentMessage = "a handler returned without an answer, which is an empty 200, also for repeats; " +
		"if it was to be answered outside of the guard, repeats get the wrong answer"
)

// AnsweredOutside reports an answer that a framework writes outside of the guard.
func (h *Hints) AnsweredOutside(ctx context.Context) {
	if h.unanswered.first() {
		h.mistake(ctx, outsideMessage+unansweredCure)
	}
}

// NoAnswer reports a handler that has returned without an answer.
func (h *Hints) NoAnswer(ctx context.Context) {
	if h.unanswered.first() {
		h.log(ctx, slog.LevelWarn, silentMessage+unansweredCure)
	}
}

// mistake logs that the guard, as it is mounted, protects nothing.
func (h *Hints) mistake(ctx context.Context, message string) {
	h.log(ctx, slog.LevelError, message)
	if h.witness != nil {
		h.witness.Mistake(h.Name, message)
	}
}

func (h *Hints) logRarely(ctx context.Context, class, message string, err error) {
	due, silent := h.rare.Due(class)
	if !due {
		return
	}
	h.log(ctx, slog.LevelError, message+"; others are not logged for a minute", slog.Any("error", err), slog.Int("repeated", silent))
}

func (h *Hints) log(ctx context.Context, level slog.Level, message string, attrs ...slog.Attr) {
	h.logger.LogAttrs(ctx, level, "httplatch: "+message, append([]slog.Attr{slog.String("name", h.Name)}, attrs...)...)
}

// once makes first return true once.
type once struct{ done atomic.Bool }

func (o *once) first() bool { return !o.done.Load() && !o.done.Swap(true) }
