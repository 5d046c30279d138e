package middleware

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/recorder"
)

// refuser is the part of a guard that answers instead of the handler.
type refuser struct {
	guardCore

	conf *settings // of the guard, with its options
}

// reject refuses r, a guard's own request, before the claim. err comes from a key function, or says
// that the body cannot be read.
func (f *refuser) reject(w http.ResponseWriter, r *http.Request, err error) {
	p := identityProblem(err)
	f.locker.Report(r.Context(), lock.Event{Kind: lock.EventRejected, Name: f.hints.Name, Once: f.conf.once, Err: rejection{p}})
	f.refuse(w, r, p)
}

// refuse answers r, which is a guard's own request, with p.
func (f *refuser) refuse(w http.ResponseWriter, r *http.Request, p *Problem) {
	f.hint(r.Context(), p)
	p.once = f.conf.once
	bodybuf.Rewind(r) // the error handler may read the body
	p.Respond(w, r, f.conf.onError)
}

// hint logs a refusal that may be a mistake of the server.
func (f *refuser) hint(ctx context.Context, p *Problem) {
	switch {
	case errors.Is(p.Err, keyfunc.ErrMissing) || p.Status == http.StatusUnauthorized:
		f.hints.KeyMissing(ctx, p.Err)
	case p.Status != http.StatusInternalServerError:
	case errors.Is(p.Err, bodybuf.ErrConsumed):
		f.hints.BodyConsumed(ctx, p.Err)
	case p.Kind() == ProblemRolledBack:
		// The Locker reports a commit that has failed.
		if early, ok := errors.AsType[*recorder.EarlyError](p.Err); ok {
			f.hints.AnswerTooLong(ctx, early)
		}
	case p.Kind() == ProblemKeyFailed && ctx.Err() == nil: // the call of a function may fail because the client has gone
		f.hints.FunctionFailed(ctx, p.Err)
	}
}

// rejection is the error of an [lock.EventRejected].
type rejection struct{ problem *Problem }

func (r rejection) Error() string { return r.problem.Err.Error() }
func (r rejection) Unwrap() error { return r.problem.Err }

// Class returns a short and stable name of the reason: the kind of the problem, or "refused" for a
// status that a key function chose itself.
func (r rejection) Class() string {
	kind := r.problem.Kind()
	if kind == "" {
		return markOfOthers
	}
	return strings.ReplaceAll(string(kind), "-", "_")
}
