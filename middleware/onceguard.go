package middleware

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/internal/oncecall"
	"github.com/httplatch/httplatch/internal/submission"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/recorder"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// onceGuard is the state of one call of Idempotent or Dedupe.
type onceGuard struct {
	kind  string // part of each record's key
	scope keyfunc.Func
	key   keyfunc.Func // nil: the fingerprint
	refuser
	idempotentConfig
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
			settings:     settings{onError: sendProblem, once: true},
			requestLimit: setting.DefaultBodyLimit,
			inProgress:   kinds[ProblemInProgress].status,
			answers:      recorder.Settings{Limit: setting.DefaultBodyLimit},
		},
	}
	for _, o := range opts {
		if o == nil {
			panic("middleware." + constructor + ": nil option")
		}
		o.applyIdempotent(&g.idempotentConfig)
	}
	g.conf = &g.settings
	g.locker = g.over(l).With(lock.WithDetached())
	g.hints.Init(g.locker)
	return g
}

// middleware returns the middleware of g. Its name is the kind unless set.
func (g *onceGuard) middleware() func(http.Handler) http.Handler {
	g.hints.Name = cmp.Or(g.guardName, g.kind)
	return func(next http.Handler) http.Handler { return g.wrap(next, g.serve) }
}

// defaultWait is how long a repeat waits for the first answer, unless the Locker has lock.WithWait.
// Most HTTP clients do not repeat a 409, so a refusal would be the last that they hear of an
// order that is placed.
const defaultWait = 10 * time.Second

// copyOf returns a guard's own copy of its caller's request, and the onceRequest in the same
// allocation. A key function that reads the body replaces it, and the caller's request must not
// change. The handler gets the copy.
func copyOf(r *http.Request) (*http.Request, *onceRequest) {
	own := new(struct {
		http.Request
		onceRequest
	})
	own.Request = *r
	own.call.Work, own.call.Wait = &own.onceRequest, defaultWait
	return &own.Request, &own.onceRequest
}

// serve guards one request. The handler runs unguarded if a key function returns ErrSkip, or if an
// outer guard of the request already has the record.
func (g *onceGuard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	g.hints.CheckOrder(r.Context())
	own, x := copyOf(r)
	bodybuf.Limit(own, g.requestLimit)
	x.guard, x.next, x.out, x.request = g, next, w, own
	if g.saysLifetime {
		x.call.Left = oncecall.AskLeft
	}
	defer func() { handBack(r, x.request) }()
	if g.echo && len(r.Header["Idempotency-Key"]) == 1 {
		w.Header().Set("Idempotency-Key", r.Header["Idempotency-Key"][0])
	}
	err := x.identify()
	// The server puts trailers that the client did not announce into its own request.
	own.Trailer = r.Trailer
	switch {
	case err == nil && runOf(r.Context()).within(x.id, g.locker.Store()):
		g.hints.MountedTwice(r.Context())
		next.ServeHTTP(w, own)
	case err == nil:
		x.report = formReportFor(own)
		x.once(r)
	case errors.Is(err, keyfunc.ErrSkip):
		g.locker.Report(r.Context(), lock.Event{Kind: lock.EventSkipped, Name: g.hints.Name, Once: true})
		bodybuf.Unlimit(own)
		next.ServeHTTP(w, own)
	default:
		g.reject(w, own, err)
	}
}

// once runs the handler or answers instead. r is the request of the guard's caller.
func (x *onceRequest) once(r *http.Request) {
	g, w := x.guard, x.out
	receipt, replayed, err := oncecall.Of(g.locker).Once(r.Context(), &x.call, x.id, x.fingerprint())
	_, notKept := errors.AsType[notKeptError](err)
	// The handler's own answer is sent if Once has returned its record, or if it is not kept.
	answered := x.run != nil && x.run.answer.Ready() && !replayed && (err == nil || notKept)
	switch {
	case x.unprotected, x.run != nil && x.run.answer.Streamed():
		// The answer was sent already, whether or not the receipt was settled.
	case answered:
		// The handler of this request has answered.
		if !notKept {
			x.report.add(w.Header())
			x.run.lifetime.add(w.Header())
		}
		x.run.answer.Send()
	case err == nil && (replayed || x.broken() == nil):
		// The record of another run is the answer.
		own := x.discard(r)
		x.report.add(w.Header())
		g.lifetimeOf(x.call.Left).add(w.Header())
		g.replay(w, own, receipt, replayedMark)
	case replayed:
		// The run that this request waited for has failed.
		g.replayFailure(w, x.discard(r), err)
	default:
		// There is no answer to send: a refusal.
		own := x.discard(r)
		p := x.problem(errors.Join(x.broken(), err))
		if kinds[p.Kind()].endsKey {
			x.report.add(w.Header())
		}
		g.refuse(w, own, p)
	}
}

// Marks of a replayed answer. An answer that is not kept goes only to requests that have waited
// for it. The next request with its key runs.
const (
	replayedMark = "true"
	notKeptMark  = "not-kept"
)

// replay sends the answer of an earlier request, marked with mark.
func (g *onceGuard) replay(w http.ResponseWriter, r *http.Request, receipt []byte, mark string) {
	if g.rpc != nil {
		receipt = g.rpc.readdressed(r, g.requestLimit, receipt)
	}
	receipt, err := adapted(g.onReplay, r, receipt)
	if err != nil {
		delete(w.Header(), recorder.LifetimeHeader)
		g.refuseReplay(w, r, err)
		return
	}
	err = recorder.Replay(w, r, receipt, mark)
	if err != nil {
		delete(w.Header(), recorder.LifetimeHeader) // a refusal has no lifetime
	}
	switch {
	case err == nil:
	case errors.Is(err, recorder.ErrUnanswered):
		g.refuse(w, r, ProblemOutcomeUnknown.problem(err))
	default:
		g.refuse(w, r, ProblemResultNotReplayable.problem(err))
	}
}

// refuseReplay refuses a repeat because of err.
func (g *onceGuard) refuseReplay(w http.ResponseWriter, r *http.Request, err error) {
	if own, ok := errors.AsType[*keyfunc.Error](err); ok {
		g.refuse(w, r, keyProblem(own))
		return
	}
	g.hints.FunctionFailed(r.Context(), err)
	g.refuse(w, r, &Problem{Status: http.StatusInternalServerError, Title: http.StatusText(http.StatusInternalServerError), Err: err})
}

// replayFailure sends the answer of a failed request to a repeat that has waited for it. err is the
// error of that request.
func (g *onceGuard) replayFailure(w http.ResponseWriter, r *http.Request, err error) {
	f, ok := errors.AsType[*failure](err)
	if !ok || f.record == nil {
		g.refuse(w, r, ProblemFirstFailed.problem(err))
		return
	}
	g.replay(w, r, f.record, notKeptMark)
	markRefused(r, f.status)
}

// submission returns the identity of the request whose record is id.
func (g *onceGuard) submission(id string) submission.Submission {
	if g.key == nil {
		id = ""
	}
	return submission.Submission{ID: id, Secret: g.secret}
}
