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
	guardCore
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
	g.locker = g.lockerWith(l).With(lock.WithDetached())
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
	x := &run{next: next, out: w}
	x.guarded = guarded{guard: &g.guardCore, outer: outerOf(r.Context()), run: x, request: *r}
	x.own = &x.request
	x.submission.Wait, x.submission.AskLeft = defaultWait, g.saysLifetime
	for o := x.outer; o != nil; o = o.outer {
		if o.run == nil {
			g.hints.LockOutside(r.Context())
		}
	}
	defer func() { handBack(r, x.own) }()
	bodybuf.Limit(x.own, g.requestLimit)
	if g.echo && len(r.Header["Idempotency-Key"]) == 1 {
		w.Header().Set("Idempotency-Key", r.Header["Idempotency-Key"][0])
	}
	err := g.identify(x)
	// The server puts trailers that the client did not announce into its own request.
	x.own.Trailer = r.Trailer
	switch {
	case err != nil:
		g.serveUnclaimed(w, x.own, next, err)
	case x.heldOutside(x.keys[0]):
		g.hints.MountedTwice(r.Context())
		next.ServeHTTP(w, x.own)
	default:
		x.cookie = formCookie(x.own)
		g.claim(x, r)
	}
}

// claim runs the handler or answers instead. r is the request of the guard's caller.
func (g *onceGuard) claim(x *run, r *http.Request) {
	claimed, earlier, err := g.locker.Begin(r.Context(), x.keys[0], x.compared, &x.submission)
	failed, waited := err.(*lock.FailedRunError) //nolint:errorlint // the cause of the request's context may be one, of another key
	switch {
	case waited:
		g.replayFailure(x, failed.Err)
	case err != nil:
		g.refuseRun(x, onceProblem(err, x.compared))
	case claimed == nil:
		g.replayRun(x, earlier.Receipt, earlier.Left)
	case lock.Attempt(claimed.Context()) == 0: // the store did not answer, and the Locker fails open
		defer func() { _, _, _ = claimed.Settle(r.Context(), nil) }()
		if g.secret != nil { // the keys of its calls keep a repeat from a second effect there
			*x.own = *x.own.WithContext(context.WithValue(x.own.Context(), submission.ContextKey{}, &x.named)) // no handler has seen it yet
		}
		x.serveUnprotected(x.out, x.next)
	default:
		x.Run = claimed
		g.runAndAnswer(x, r)
	}
}

var errPanicked = errors.New("middleware: the handler panicked, or ended its goroutine")

// runAndAnswer runs the handler under the lease, and sends its answer, or the answer of the run that took
// over. It does not recover panics.
func (g *onceGuard) runAndAnswer(x *run, r *http.Request) {
	ctx := r.Context()
	defer func() { _, _, _ = x.Fail(ctx, errPanicked) }()
	g.runHandler(x)
	receipt, kept, err := x.answer.Receipt()
	if kept && x.awaited != nil {
		receipt, kept = g.rpc.outcome(receipt, x.awaited)
	}
	var replayed bool
	switch {
	case err != nil:
		receipt, replayed, err = x.Fail(ctx, err)
	case kept:
		receipt, replayed, err = x.Run.Settle(ctx, receipt)
	default:
		receipt, replayed, err = x.Fail(ctx, x.failure())
	}
	switch {
	case x.answer.Streamed():
		// The answer was sent already, whether or not the receipt was settled.
	case replayed:
		x.discard(r)
		g.replayRun(x, receipt, 0)
	case x.answer.Failed() == nil && (err == nil || !kept):
		if kept {
			x.AddHeaders(x.out.Header())
		}
		x.answer.Send()
	default:
		x.discard(r)
		err = errors.Join(x.answer.Failed(), err)
		if x.InTransaction() {
			g.refuseRun(x, transactionProblem(err))
		} else {
			g.refuseRun(x, onceProblem(err, x.compared))
		}
	}
}

// runHandler runs the handler under the lease, until its answer is complete.
func (g *onceGuard) runHandler(x *run) {
	lease := x.Run.Context()
	x.guarded.Context, x.client, x.remembered = lease, x.own.Context(), g.locker.Keep() //nolint:fatcontext // once a request
	x.answer.Start(&g.answers, x, &x.marks, x.out, x.own)
	returned := false
	defer func() {
		if !returned {
			// The handler panicked. Code that answers in its place must not find headers of the
			// handler.
			x.answer.Discard()
		}
		x.finish()
	}()
	*x.own = *x.own.WithContext(x) // no handler has seen it yet
	x.next.ServeHTTP(&x.answer, x.own)
	returned = true
	if x.Err() != nil { // a handler that looks at its context may have stopped in the middle of a stream
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

// refuseRun answers x with p.
func (g *onceGuard) refuseRun(x *run, p *Problem) {
	if p.Kind() == ProblemInProgress {
		p.Status = g.inProgress
	}
	if kinds[p.Kind()].endsKey {
		x.addHeaders(x.out.Header(), 0)
	}
	g.refuse(x.out, x.own, p)
}

// replayRun answers x with the record of another run. left is how much longer that is kept, 0 if it is not known.
func (g *onceGuard) replayRun(x *run, receipt []byte, left time.Duration) {
	x.addHeaders(x.out.Header(), left)
	g.replay(x.out, x.own, receipt, replayedMark)
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
	receipt, err := adapted(g.onReplay, w.Header(), r, receipt)
	var p *Problem
	if err != nil {
		if own, ok := errors.AsType[*keyfunc.Error](err); ok {
			p = keyProblem(own)
		} else {
			g.hints.FunctionFailed(r.Context(), err)
			p = &Problem{Status: http.StatusInternalServerError, Title: http.StatusText(http.StatusInternalServerError), Err: err}
		}
	} else if err = recorder.Replay(w, r, receipt, mark); err == nil {
		return
	} else if p = ProblemResultNotReplayable.problem(err); errors.Is(err, recorder.ErrUnanswered) {
		p = ProblemOutcomeUnknown.problem(err)
	}
	delete(w.Header(), recorder.LifetimeHeader) // a refusal has no lifetime
	g.refuse(w, r, p)
}

// replayFailure sends the answer of a failed request to a repeat that has waited for it. err is the
// error of that request.
func (g *onceGuard) replayFailure(x *run, err error) {
	f, ok := errors.AsType[*failure](err)
	if !ok || f.record == nil {
		g.refuse(x.out, x.own, ProblemFirstFailed.problem(err))
		return
	}
	sent := &recorder.StatusWriter{ResponseWriter: x.out} // WithReplay may change the status, or refuse
	g.replay(sent, x.own, f.record, notKeptMark)
	markRefused(x.own, sent.Code)
}
