package middleware

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/internal/bodybuf"
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

// serve guards one request. The handler runs unguarded if a key function returns ErrSkip, or if an
// outer guard of the request already has the record.
func (g *onceGuard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	g.hints.CheckOrder(r.Context())
	x := newRun(&g.guardCore, w, r, next)
	x.submission.Wait, x.submission.AskLeft = defaultWait, g.saysLifetime
	defer func() { handBack(r, x.request) }()
	own := x.request
	bodybuf.Limit(own, g.requestLimit)
	if g.echo && len(r.Header["Idempotency-Key"]) == 1 {
		w.Header().Set("Idempotency-Key", r.Header["Idempotency-Key"][0])
	}
	err := g.identify(x)
	// The server puts trailers that the client did not announce into its own request.
	own.Trailer = r.Trailer
	switch {
	case err == nil && runOf(r.Context()).within(x.id, g.locker.Store()):
		g.hints.MountedTwice(r.Context())
		next.ServeHTTP(w, own)
	case err == nil:
		x.report = formReportFor(own)
		g.once(x, r)
	case errors.Is(err, keyfunc.ErrSkip):
		g.locker.Report(r.Context(), lock.Event{Kind: lock.EventSkipped, Name: g.hints.Name, Once: true})
		bodybuf.Unlimit(own)
		next.ServeHTTP(w, own)
	default:
		g.reject(w, own, err)
	}
}

// once runs the handler or answers instead. r is the request of the guard's caller.
func (g *onceGuard) once(x *run, r *http.Request) {
	claimed, earlier, err := g.locker.Begin(r.Context(), x.id, g.compared(x), &x.submission)
	failed, waited := err.(*lock.FailedRunError) //nolint:errorlint // the cause of the request's context may be one, of another key
	switch {
	case waited:
		g.replayFailure(x.out, x.request, failed.Err)
	case err != nil:
		g.refuseRun(x, x.request, onceProblem(err, g.compared(x)))
	case claimed == nil:
		g.replayRun(x, x.request, earlier.Receipt, earlier.Left)
	case lock.Attempt(claimed.Context()) == 0: // the store did not answer, and the Locker fails open
		defer func() { _, _, _ = claimed.Settle(r.Context(), nil) }()
		g.runUnprotected(x)
	default:
		x.Run = claimed
		g.run(x, r)
	}
}

// runUnprotected runs the handler as if there were no guard.
func (g *onceGuard) runUnprotected(x *run) {
	if g.secret != nil { // the keys of its calls keep a repeat from a second effect there
		s := g.submission(x.id)
		named := context.WithValue(x.request.Context(), submission.ContextKey{}, &s)
		*x.request = *x.request.WithContext(named) // no handler has seen it yet
	}
	x.next.ServeHTTP(x.out, x.request)
}

var errPanicked = errors.New("middleware: the handler panicked, or ended its goroutine")

// run runs the handler under the lease, and sends its answer, or the answer of the run that took
// over. It does not recover panics.
func (g *onceGuard) run(x *run, r *http.Request) {
	ctx := r.Context()
	defer func() { _, _, _ = x.Fail(ctx, errPanicked) }()
	g.runHandler(x)
	receipt, kept, err := x.answer.Receipt()
	var replayed bool
	switch {
	case err != nil:
		receipt, replayed, err = x.Fail(ctx, err)
	case kept:
		receipt, replayed, err = x.Run.Settle(ctx, receipt)
	default:
		receipt, replayed, err = x.Fail(ctx, x.failure())
	}
	answered := x.answer.Ready() && (err == nil || !kept)
	switch {
	case x.answer.Streamed():
		// The answer was sent already, whether or not the receipt was settled.
	case replayed:
		g.replayRun(x, x.discard(r), receipt, 0)
	case answered:
		if kept {
			x.addHeaders(x.out.Header())
		}
		x.answer.Send()
	default:
		g.refuseRun(x, x.discard(r), g.problem(x, errors.Join(x.answer.Failed(), err)))
	}
}

// runHandler runs the handler under the lease, until its answer is complete.
func (g *onceGuard) runHandler(x *run) {
	lease, client := x.Context(), x.request.Context()
	x.outer, x.named, x.lifetime = runOf(client), g.submission(x.id), g.lifetimeOf(g.locker.Keep())
	x.context.init(lease, client, x)
	x.answer.Start(&g.answers, x, x.out, x.request)
	returned := false
	defer func() {
		if !returned {
			// The handler panicked. Code that answers in its place must not find headers of the
			// handler.
			x.answer.Discard()
		}
		x.context.end()
	}()
	*x.request = *x.request.WithContext(&x.context) // no handler has seen it yet
	x.next.ServeHTTP(&x.answer, x.request)
	returned = true
	if x.context.Err() != nil { // a handler that looks at its context may have stopped in the middle of a stream
		x.markCutOff()
	}
	switch x.answer.Complete() {
	case recorder.Outside:
		g.hints.AnsweredOutside(lease)
	case recorder.Silent:
		g.hints.NoAnswer(lease)
	case recorder.Answered:
	}
}

// compared returns the fingerprint of the request, which every repeat must have, too. It is
// nil for Dedupe, whose record is already named by the fingerprint.
func (g *onceGuard) compared(x *run) []byte {
	if g.key == nil {
		return nil
	}
	return x.print[:]
}

// problem returns the refusal for err, which has kept the handler's answer from being sent.
func (g *onceGuard) problem(x *run, err error) *Problem {
	if x.InTransaction() {
		return transactionProblem(err)
	}
	return onceProblem(err, g.compared(x))
}

// refuseRun answers own with p.
func (g *onceGuard) refuseRun(x *run, own *http.Request, p *Problem) {
	if p.Kind() == ProblemInProgress {
		p.Status = g.inProgress
	}
	if kinds[p.Kind()].endsKey {
		x.report.add(x.out.Header())
	}
	g.refuse(x.out, own, p)
}

// replayRun answers own with the record of another run, which is kept for another left, if that is known.
func (g *onceGuard) replayRun(x *run, own *http.Request, receipt []byte, left time.Duration) {
	x.report.add(x.out.Header())
	g.lifetimeOf(left).add(x.out.Header())
	g.replay(x.out, own, receipt, replayedMark)
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
