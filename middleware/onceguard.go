package middleware

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/internal/guardkey"
	"github.com/httplatch/httplatch/internal/submission"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/hint"
	"github.com/httplatch/httplatch/middleware/internal/jsonrpc"
	"github.com/httplatch/httplatch/middleware/internal/record"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

func newOnceGuard(constructor, kind string, l *lock.Locker, scope keyfunc.Func, opts []IdempotentOption) *guard {
	mustNot(l == nil, constructor+": nil *lock.Locker")
	mustNot(scope == nil, constructor+": nil scope; where all callers are one, say keyfunc.Global")
	must(setting.ValidateReceipts(l), "%s", constructor)
	g := &guard{kind: kind, scope: scope}
	g.once, g.requestLimit, g.answers.Limit = true, setting.DefaultBodyLimit, setting.DefaultBodyLimit
	applyAll(constructor, &g.config, opts, IdempotentOption.applyIdempotent)
	g.setUp(l.With(lock.WithDetached()), cmp.Or(g.guardName, kind))
	return g
}

// defaultWait is how long a repeat waits, unless the Locker has lock.WithWait. Most HTTP clients do not
// repeat a 409, so a refusal would be the last that they hear of an order that is placed.
const defaultWait = 10 * time.Second

// serveOnce guards one request. The handler runs unguarded if a key function returns ErrSkip, or if an
// outer guard of the request already has the record.
func (g *guard) serveOnce(w http.ResponseWriter, r *http.Request, next http.Handler) {
	x := &run{next: next, out: w}
	x.guarded = guarded{guard: g, run: x, request: *r}
	x.outer, _ = r.Context().Value(guardkey.Outer{}).(*guarded)
	x.own = &x.request
	x.submission.Wait, x.submission.AskLeft = defaultWait, g.saysLifetime
	for o := x.outer; o != nil; o = o.outer {
		if o.run == nil {
			g.hints.Log(r.Context(), hint.LockOutside, nil)
		}
	}
	defer func() { handBack(r, x.own) }()
	bodybuf.Limit(x.own, g.requestLimit)
	if g.echo && len(r.Header["Idempotency-Key"]) == 1 {
		w.Header().Set("Idempotency-Key", r.Header["Idempotency-Key"][0])
	}
	err := g.identify(x)
	x.own.Trailer = r.Trailer // trailers that were not announced are in the server's request only
	switch {
	case err != nil:
		g.serveUnclaimed(w, x.own, next, err)
	case x.heldOutside(x.keys[0]):
		g.hints.Log(r.Context(), hint.MountedTwice, nil)
		next.ServeHTTP(w, x.own)
	default:
		x.cookie = formCookie(x.own)
		g.claim(x, r)
	}
}

// claim runs the handler or answers instead. r is the request of the guard's caller.
func (g *guard) claim(x *run, r *http.Request) {
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
func (g *guard) runAndAnswer(x *run, r *http.Request) {
	ctx := r.Context()
	defer func() { _, _, _ = x.Fail(ctx, errPanicked) }()
	gaveUp := g.runHandler(x)
	receipt, kept, err := x.answer.Receipt()
	if kept && x.awaited != nil {
		receipt, kept = g.rpc.outcome(receipt, x.awaited)
	}
	var replayed bool
	switch {
	case err != nil:
		receipt, replayed, err = x.Fail(ctx, err)
	case gaveUp != nil && x.InTransaction():
		receipt, replayed, err = x.Fail(ctx, gaveUp)
	case gaveUp != nil:
		receipt, replayed, err = x.Run.Settle(ctx, record.Unknown())
		err = cmp.Or(err, gaveUp)
	case kept:
		receipt, replayed, err = x.Run.Settle(ctx, receipt)
	default:
		// Each of the requests that have waited for the answer would do the same work and fail.
		var failed error // nil if the answer depends on the caller
		if !record.OfCaller(x.answer.Status) {
			failed = &failure{slices.Clone(receipt)} // the buffers go to other answers
		}
		receipt, replayed, err = x.Fail(ctx, failed)
	}
	switch {
	case x.answer.Streamed:
		// The answer was sent already, whether or not the receipt was settled.
	case replayed:
		x.discard(r)
		g.replayRun(x, receipt, 0)
	case x.answer.Err == nil && (err == nil || !kept):
		if kept {
			x.AddHeaders(x.out.Header())
		}
		x.answer.Send()
	default:
		x.discard(r)
		err = errors.Join(x.answer.Err, err)
		if x.InTransaction() {
			g.refuseRun(x, transactionProblem(err))
		} else {
			g.refuseRun(x, onceProblem(err, x.compared))
		}
	}
}

// runHandler runs the handler under the lease, until its answer is complete. gaveUp is the loss of the
// lease if the handler has returned after it without a word: an empty 200 would call that a success.
func (g *guard) runHandler(x *run) (gaveUp error) {
	lease := x.Run.Context()
	x.guarded.Context, x.client, x.remembered = lease, x.own.Context(), g.locker.Keep() //nolint:fatcontext // once a request
	x.answer.Start(&g.answers, x, &x.marks, x.out)
	returned := false
	defer func() {
		if !returned {
			x.answer.Discard() // it panicked, and code that answers in its place must not find its headers
		}
		x.finish()
	}()
	*x.own = *x.own.WithContext(x) // no handler has seen it yet
	x.next.ServeHTTP(&x.answer, x.own)
	returned = true
	lost := x.Err() != nil
	if lost { // a handler that looks at its context may have stopped in the middle of a stream
		x.markCutOff()
	}
	switch silent, outside := x.answer.Complete(); {
	case outside:
		g.hints.Log(lease, hint.AnsweredOutside, nil)
	case silent && lost:
		gaveUp = context.Cause(x)
	case silent:
		g.hints.Log(lease, hint.NoAnswer, nil)
	}
	return gaveUp
}

// refuseRun answers x with p.
func (g *guard) refuseRun(x *run, p *Problem) {
	if p.Kind() == ProblemInProgress {
		p.Status = cmp.Or(g.inProgress, p.Status)
	}
	if kinds[p.Kind()].endsKey {
		x.remembered = 0
		x.AddHeaders(x.out.Header())
	}
	g.refuse(x.out, x.own, p)
}

// replayRun answers x with the record of another run. left is how much longer that is kept, 0 if it is not known.
func (g *guard) replayRun(x *run, receipt []byte, left time.Duration) {
	rec, p := g.replayed(x, receipt)
	if p != nil {
		g.refuseRun(x, p)
		return
	}
	x.remembered = left
	x.AddHeaders(x.out.Header())
	record.Replay(x.out, x.own, rec, replayedMark)
}

// Marks of a replayed answer. An answer that is not kept goes only to requests that have waited
// for it. The next request with its key runs.
const (
	replayedMark = "true"
	notKeptMark  = "not-kept"
)

// Errors of the problems of a record without an answer.
var (
	errUnanswered = errors.New("middleware: no answer says what became of it")
	errNotKept    = errors.New("middleware: no more is known of the answer than that there was one")
)

// replayed returns the answer in receipt as x gets it, or the reason why it gets none. A receipt that cannot be
// read, because a newer version has written it or it is damaged, still shows that the request was processed.
func (g *guard) replayed(x *run, receipt []byte) (record.Record, *Problem) {
	rec, err := record.Read(receipt)
	switch {
	case record.IsUnknown(receipt):
		return rec, ProblemOutcomeUnknown.problem(errUnanswered)
	case len(receipt) == 0, rec.Tombstone:
		rec.SetHeader(x.out.Header()) // the Location
		return rec, ProblemResultNotReplayable.problem(errNotKept)
	case err != nil:
		return rec, ProblemResultNotReplayable.problem(err)
	}
	if x.awaited != nil {
		rec.Body, _ = jsonrpc.Readdress(rec.ContentType(), rec.Body, x.awaited)
	}
	if g.onReplay == nil {
		return rec, nil
	}
	rec, err = adapted(g.onReplay, x.out.Header(), x.own, rec)
	if own, ok := errors.AsType[*keyfunc.Error](err); ok {
		return rec, keyProblem(own)
	}
	if err != nil {
		g.hints.Log(x.own.Context(), hint.FunctionFailed, err)
		return rec, &Problem{Status: http.StatusInternalServerError, Title: http.StatusText(http.StatusInternalServerError), Err: err}
	}
	return rec, nil
}

// replayFailure sends the answer of a request that has failed with err to a repeat that has waited for it.
func (g *guard) replayFailure(x *run, err error) {
	f, ok := errors.AsType[*failure](err)
	if !ok || f.record == nil {
		g.refuse(x.out, x.own, ProblemFirstFailed.problem(err))
		return
	}
	sent := &record.StatusWriter{ResponseWriter: x.out} // WithReplay may change the status, or refuse
	if rec, p := g.replayed(x, f.record); p != nil {
		g.refuse(sent, x.own, p)
	} else {
		record.Replay(sent, x.own, rec, notKeptMark)
	}
	markRefused(x.own, sent.Code)
}
