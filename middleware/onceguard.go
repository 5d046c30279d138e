package middleware

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/internal/oncecall"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/event"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// onceGuard is what one call of Idempotent or Dedupe built.
type onceGuard struct {
	locker *lock.Locker
	kind   string // part of each record's key
	scope  keyfunc.Func
	key    keyfunc.Func // nil: the fingerprint
	refuser
	idempotentConfig
	order      orderHint
	outlived   outlivedHint
	twice      twiceHint
	unanswered unansweredHint
	rooms      roomPool
}

func newOnceGuard(constructor string, l *lock.Locker, scope keyfunc.Func, opts []IdempotentOption) *onceGuard {
	switch {
	case l == nil:
		panic("middleware." + constructor + ": nil *lock.Locker")
	case scope == nil:
		panic("middleware." + constructor + ": nil scope; where all callers are one, say keyfunc.Global")
	}
	must(setting.ValidateReceipts(l), "%s", constructor)
	g := &onceGuard{
		scope: scope,
		idempotentConfig: idempotentConfig{
			settings:      settings{onError: sendProblem, once: true},
			requestLimit:  setting.DefaultBodyLimit,
			responseLimit: setting.DefaultBodyLimit,
		},
	}
	for _, o := range opts {
		if o == nil {
			panic("middleware." + constructor + ": nil option")
		}
		o.applyIdempotent(&g.idempotentConfig)
	}
	g.locker = g.over(l).With(lock.WithDetached())
	g.reportTo(g.locker)
	return g
}

// called is the middleware of g, whose name is kind unless set.
func (g *onceGuard) called(kind string) func(http.Handler) http.Handler {
	g.name = cmp.Or(g.guardName, kind)
	return g.wrap
}

func (g *onceGuard) wrap(next http.Handler) http.Handler {
	return guarded(next, &g.guardLog, &g.outlived, g.serve)
}

func (g *onceGuard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	g.order.check(r.Context(), &g.guardLog)
	own, x := copyOf(r)
	bodybuf.Limit(own, g.requestLimit)
	x.guard, x.next, x.out, x.request = g, next, w, own
	defer func() { handBack(r, x.request) }()
	err := x.identify()
	// Trailers that the client did not announce are put into the request that
	// the server made.
	own.Trailer = r.Trailer
	switch {
	case err == nil && ranOf(r.Context()).within(x.id, g.locker.Store()):
		g.twice.log(r.Context(), &g.guardLog)
		next.ServeHTTP(w, own)
	case err == nil:
		x.report = formReportFor(own)
		x.once(r)
	case errors.Is(err, keyfunc.ErrSkip):
		g.locker.Report(r.Context(), lock.Event{Kind: event.Skipped, Name: g.name, Once: true})
		bodybuf.Unlimit(own)
		next.ServeHTTP(w, own)
	default:
		p := identityProblem(err)
		g.locker.Report(r.Context(), lock.Event{Kind: event.Rejected, Name: g.name, Once: true, Err: rejection{p}})
		g.refuse(w, own, &g.settings, p)
	}
}

// once runs the handler or answers in its place. r is the request of the
// guard's caller.
func (x *execution) once(r *http.Request) {
	g, w := x.guard, x.out
	receipt, replayed, err := oncecall.Once(r.Context(), g.locker, x.call, x.id, x.fingerprint())
	_, failed := errors.AsType[*notKeptError](err)
	switch {
	case x.left(), x.unprotected:
		// Whatever became of the receipt, there is nothing more to say.
	case x.complete() && !replayed && (err == nil || failed):
		if !failed {
			x.report.add(w.Header())
		}
		x.ran.answer.send()
		x.ran.answer.recycle()
	case err == nil && (replayed || x.broken() == nil):
		x.discard()
		x.report.add(w.Header())
		g.replay(w, x.unrun(r), receipt, "true")
	case replayed:
		g.replayFailure(w, x.unrun(r), err)
	default:
		x.discard()
		p := x.problem(errors.Join(x.broken(), err))
		if p.Kind().endsKey() {
			x.report.add(w.Header())
		}
		g.refuse(w, x.unrun(r), &g.settings, p)
	}
}
