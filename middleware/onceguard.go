package middleware

import (
	"errors"
	"net/http"

	"github.com/httplatch/httplatch/internal/bodybuf"
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
	order    orderHint
	outlived outlivedHint
	rooms    roomPool
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
	must(validateReceipts(l), "%s", constructor)
	g := &onceGuard{
		locker: l.With(lock.WithDetached()),
		scope:  scope,
		idempotentConfig: idempotentConfig{
			settings:      settings{onError: sendProblem},
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

func (g *onceGuard) wrap(next http.Handler) http.Handler {
	return guarded(next, g.name, &g.outlived, g.serve)
}

func (g *onceGuard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	g.order.check(r.Context(), g.name)
	own, scope := copyOf(r)
	bodybuf.Limit(own, g.requestLimit)
	x := execution{guard: g, next: next, out: w, request: own, scope: scope}
	defer func() { returnForm(r, x.request) }()
	err := x.identify()
	// Trailers that the client did not announce are put into the request that
	// the server made.
	own.Trailer = r.Trailer
	switch {
	case err == nil:
		x.once(r)
	case errors.Is(err, keyfunc.ErrSkip):
		g.locker.Report(r.Context(), lock.Event{Kind: lock.EventSkipped, Name: g.name, Once: true})
		bodybuf.Unlimit(own)
		next.ServeHTTP(w, own)
	default:
		p := identityProblem(err)
		g.locker.Report(r.Context(), lock.Event{Kind: lock.EventRejected, Name: g.name, Once: true, Err: rejection{p}})
		g.refuse(w, own, &g.settings, p)
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
	x.scope.Context = ctx
	receipt, replayed, err := g.locker.Once(x.scope, x.id, x.fingerprint(), x.run)
	_, failed := errors.AsType[*notKeptError](err)
	switch {
	case x.left():
		// Whatever became of the receipt, there is nothing more to say.
	case x.complete() && !replayed && (err == nil || failed):
		x.ran.answer.send()
		x.ran.answer.recycle()
	case err == nil && (replayed || x.broken() == nil):
		x.discard()
		g.replay(w, x.unrun(r), receipt, "true")
	case replayed:
		g.replayFailure(w, x.unrun(r), err)
	case g.failOpen && unanswered(err) && r.Context().Err() == nil:
		x.next.ServeHTTP(w, x.request)
	default:
		x.discard()
		g.refuse(w, x.unrun(r), &g.settings, onceProblem(errors.Join(x.broken(), err), x.fingerprint()))
	}
}
