package middleware

import (
	"errors"
	"net/http"
	"slices"

	"github.com/httplatch/httplatch/internal/failopen"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
)

// onceGuard is what one call of Idempotent or Dedupe built.
type onceGuard struct {
	locker *lock.Locker
	scope  keyfunc.Func
	key    keyfunc.Func // nil: the fingerprint
	refuser
	idempotentConfig
	order orderHint
	rooms roomPool
}

// defaultBodyLimit is how long the bodies of requests, and of answers that are
// kept, may be.
const defaultBodyLimit = 1 << 20

func newOnceGuard(constructor string, l *lock.Locker, scope keyfunc.Func, opts []IdempotentOption) *onceGuard {
	switch {
	case l == nil:
		panic("middleware." + constructor + ": nil *lock.Locker")
	case scope == nil:
		panic("middleware." + constructor + ": nil scope; where all callers are one, say keyfunc.Global")
	}
	g := &onceGuard{
		locker: l.With(lock.WithDetached()),
		scope:  scope,
		idempotentConfig: idempotentConfig{
			settings:      settings{onError: sendProblem},
			final:         finalByDefault,
			requestLimit:  defaultBodyLimit,
			responseLimit: defaultBodyLimit,
		},
	}
	for _, o := range opts {
		if o == nil {
			panic("middleware." + constructor + ": nil option")
		}
		o.applyIdempotent(&g.idempotentConfig)
	}
	return g
}

// finalByDefault keeps what the same request would be answered again, and not
// what depends on the moment, or on who asks.
func finalByDefault(status int) bool {
	return status < 500 && !slices.Contains([]int{
		http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout,
		http.StatusTooEarly, http.StatusTooManyRequests,
	}, status)
}

func (g *onceGuard) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if safe(r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		g.serve(w, r, next)
	})
}

func (g *onceGuard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	g.order.check(r.Context(), g.name)
	own := copyOf(r)
	defer returnForm(r, own)
	x := execution{guard: g, next: next, out: w, request: own}
	err := x.identify()
	// Trailers that the client did not announce are put into the request that
	// the server made.
	own.Trailer = r.Trailer
	switch {
	case err == nil:
		x.once(r)
	case errors.Is(err, keyfunc.ErrSkip):
		g.locker.Report(r.Context(), lock.Event{Kind: lock.EventSkipped, Name: g.name, Once: true})
		next.ServeHTTP(w, own)
	default:
		p := identityProblem(err)
		g.locker.Report(r.Context(), lock.Event{Kind: lock.EventRejected, Name: g.name, Once: true, Err: rejection{p}})
		g.refuse(w, r, &g.settings, p)
	}
}

// once runs the handler or answers in its place. r is the request of the
// guard's caller.
func (x *execution) once(r *http.Request) {
	g, w, ctx := x.guard, x.out, r.Context()
	if g.failOpen {
		var hold failopen.Hold
		ctx = failopen.With(ctx, &hold)
		defer func() {
			if hold.End != nil {
				hold.End()
			}
		}()
	}
	receipt, replayed, err := g.locker.Once(ctx, x.id, x.fingerprint(), x.run)
	_, failed := errors.AsType[*notKeptError](err)
	switch {
	case x.left():
		// Whatever became of the receipt, there is nothing more to say.
	case x.complete() && !replayed && (err == nil || failed):
		x.ran.answer.send()
		x.ran.answer.recycle()
	case err == nil && (replayed || x.broken() == nil):
		x.discard()
		g.replay(w, r, receipt, "true")
	case replayed:
		g.replayFailure(w, r, err)
	case g.failOpen && unanswered(err) && r.Context().Err() == nil:
		x.next.ServeHTTP(w, x.request)
	default:
		x.discard()
		g.refuse(w, r, &g.settings, onceProblem(errors.Join(x.broken(), err), x.fingerprint()))
	}
}
