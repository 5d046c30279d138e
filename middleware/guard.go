package middleware

import (
	"cmp"
	"errors"
	"net/http"
	"reflect"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/internal/httpmethod"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// guard is the state of one call of Lock, LockAll, Idempotent or Dedupe.
type guard struct {
	locker *lock.Locker
	hints  hints
	key    keyfunc.Func // nil for LockAll, and for Dedupe, whose key is the fingerprint
	keys   keyfunc.Set  // of LockAll
	scope  keyfunc.Func // of Idempotent and Dedupe
	kind   string       // of Idempotent and Dedupe: part of each record's key
	config
}

func (g *guard) setUp(l *lock.Locker, name string) {
	g.locker, g.hints.name = l, name
	if g.outage != nil {
		g.locker = l.With(g.outage)
	}
	g.hints.locker = g.locker
}

// around returns the middleware of g. serve gets the requests whose method is not safe.
func (g *guard) around(serve func(http.ResponseWriter, *http.Request, http.Handler)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		timesOut := reflect.TypeOf(next) == timeoutHandler
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if httpmethod.Safe(r.Method) {
				next.ServeHTTP(w, r)
				return
			}
			if timesOut {
				g.hints.log(r.Context(), &outlived, nil)
			}
			serve(w, r, next)
		})
	}
}

func valueOf(f keyfunc.Func, r *http.Request) (string, error) {
	value, err := f(r)
	if err == nil && value == "" {
		err = keyfunc.ErrMissing
	}
	return value, err
}

// serveUnclaimed serves r, a guard's own request, after an error of a key function, or of reading the body. With
// ErrSkip the handler runs unguarded.
func (g *guard) serveUnclaimed(w http.ResponseWriter, r *http.Request, next http.Handler, err error) {
	if errors.Is(err, keyfunc.ErrSkip) {
		g.locker.Report(r.Context(), lock.Event{Kind: lock.EventSkipped, Name: g.hints.name, Once: g.once})
		bodybuf.Unlimit(r)
		next.ServeHTTP(w, r)
		return
	}
	p := keyProblem(err)
	g.locker.Report(r.Context(), lock.Event{Kind: lock.EventRejected, Name: g.hints.name, Once: g.once, Err: rejection{p}})
	g.refuse(w, r, p)
}

// refuse answers r, which is a guard's own request, with p, and logs what may be a mistake of the server.
func (g *guard) refuse(w http.ResponseWriter, r *http.Request, p *Problem) {
	switch ctx := r.Context(); {
	case errors.Is(p.Err, keyfunc.ErrMissing) || p.Status == http.StatusUnauthorized:
		g.hints.log(ctx, &keyMissing, p.Err)
	case p.Status != http.StatusInternalServerError:
	case errors.Is(p.Err, bodybuf.ErrConsumed):
		g.hints.log(ctx, &bodyConsumed, p.Err)
	case p.Kind() == ProblemRolledBack:
		// The Locker reports a commit that has failed.
		if early, ok := errors.AsType[*record.EarlyError](p.Err); ok {
			g.hints.log(ctx, &answerTooLong, early)
		}
	case p.Kind() == ProblemKeyFailed && ctx.Err() == nil: // the call of a function may fail because the client has gone
		g.hints.log(ctx, &functionFailed, p.Err)
	}
	p.once = g.once
	bodybuf.Rewind(r) // the error handler may read the body
	p.Respond(w, r, g.onError)
}

type rejection struct{ problem *Problem }

func (r rejection) Error() string { return r.problem.Err.Error() }
func (r rejection) Unwrap() error { return r.problem.Err }

// Class returns the kind of the problem, or "refused" for a status that a key function chose itself.
func (r rejection) Class() string { return spelled(cmp.Or(r.problem.Kind(), markOfOthers)) }
