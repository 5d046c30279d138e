package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/internal/guardkey"
	"github.com/httplatch/httplatch/internal/submission"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/identity"
	"github.com/httplatch/httplatch/middleware/internal/jsonrpc"
	"github.com/httplatch/httplatch/middleware/internal/record"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// Idempotent runs a request once per scope, method, URL path and key, and answers every repeat with the first answer,
// marked with "Idempotent-Replayed: true":
//
//	latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
//
// scope identifies the caller: no caller gets the answer of another one. Take it from your authentication, which must
// be mounted outside, or use [keyfunc.Global] if all callers share one. In the embedded store, a scope can use only a
// part of the memory ([memstore.WithScopeShare]). key decides which requests of the caller are the same. If one of
// the two functions returns [keyfunc.ErrSkip], as [keyfunc.Optional] does, the request runs unguarded. The result ""
// is [keyfunc.ErrMissing]. Every other error refuses the request.
//
// The path is the path of the request that the guard gets, in one spelling: "/a%3Bb" is "/a;b", and "/a/b/" and
// "/a//b" are "/a/b", because routers serve them alike, but "/a%2Fb" is not "/a/b". If [http.StripPrefix] outside the
// guard makes the paths of two routes equal, or if they differ in slashes only, use different Lockers or scopes for
// them.
//
// Three things do not distinguish requests: the host, so put the tenant into the scope if a service has several;
// headers, unless [WithFingerprint] reads them, except the X-HTTP-Method-Override of a POST, which counts as its
// method; and the rights of the caller. A repeat gets the stored answer even if a check inside the guard would now
// refuse the request: authorise outside, or with [WithReplay].
//
// The handler's context outlives the client's connection: a browser gives up the first request of a double click, and
// its work must be completed. It ends when the lease is lost. See [lock.Attempt] and [lock.Commit] for the handler's
// view. How long answers are kept ([lock.WithKeep]), how long a repeat waits for the first one ([lock.WithWait]), and
// the outcome of a crash are settings of the Locker: pass locker.With(...) for one route.
//
// For operators, the record has the name of its guard ([WithName]), method, path, the time at which the request
// began, and its scope, or the text of [WithLabel]. Options are listed at [IdempotentOption].
//
// It panics on a nil Locker, a nil function and a nil option, if the Locker's store keeps no receipts, as a
// [quorum.New], and under a contract if the Locker keeps them for less than 24 hours.
func Idempotent(l *lock.Locker, scope, key keyfunc.Func, opts ...IdempotentOption) func(http.Handler) http.Handler {
	mustNot(key == nil, "Idempotent: nil key function")
	g := newOnceGuard("Idempotent", identity.Idempotent, l, scope, opts)
	g.key = key
	keep, least := g.locker.Keep(), 24*time.Hour
	mustNot(g.contract && keep < least, fmt.Sprintf("Idempotent: its contract demands that answers are kept for %v or longer, and they are kept for %v", least, keep))
	return g.around(g.serveOnce)
}

// Dedupe runs a request once within window, and answers the same request again with the first answer. It needs no key
// from the client: requests of one scope are the same if method, URL path, query and body are the same
// ([WithFingerprint]). The window begins when the first request ends.
//
// In all other respects Dedupe is like [Idempotent]: a duplicate that arrives while the first request still runs
// waits for its answer. But a user who means to submit the same twice within the window gets one submission: keep the
// window as short as a double click. It is not for a PUT or PATCH that sets a value: if a client, within the window,
// sets 1, then 2, then 1 again, the third request is a repeat of the first, and 2 stays.
//
// It panics on a nil Locker, a nil function, a window that is not positive, a nil option, and a store that keeps no
// receipts.
func Dedupe(l *lock.Locker, scope keyfunc.Func, window time.Duration, opts ...IdempotentOption) func(http.Handler) http.Handler {
	must(setting.ValidatePositive(window), "Dedupe: a window of %v", window)
	g := newOnceGuard("Dedupe", "dedupe", l, scope, opts)
	g.locker = g.locker.With(lock.WithKeep(window))
	return g.around(g.serveOnce)
}

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

// defaultWait is how long a repeat waits, unless the Locker has lock.WithWait. Most HTTP clients do not repeat a 409.
const defaultWait = 10 * time.Second

// serveOnce guards one request: the handler runs, or another answer is sent in place of its own. The handler runs
// unguarded if a key function returns ErrSkip, or if an outer guard of the request already has the record.
func (g *guard) serveOnce(w http.ResponseWriter, r *http.Request, next http.Handler) {
	ctx := r.Context()
	x := &run{next: next, out: w}
	x.guard, x.own, x.in = g, *r, &x.own
	x.outer, _ = ctx.Value(guardkey.Outer{}).(*request)
	for o := x.outer; o != nil; o = o.outer {
		if !o.guard.once {
			g.hints.log(ctx, &lockOutside, nil)
		}
	}
	defer func() { handBack(r, x.in) }()
	bodybuf.Limit(x.in, g.requestLimit)
	if g.echo && len(r.Header["Idempotency-Key"]) == 1 {
		w.Header().Set("Idempotency-Key", r.Header["Idempotency-Key"][0])
	}
	s, sum, err := g.identify(x)
	x.in.Trailer = r.Trailer // trailers that were not announced are in the server's request only
	switch {
	case err != nil:
		g.serveUnclaimed(w, x.in, next, err)
		return
	case x.heldOutside(x.keys[0]):
		g.hints.log(ctx, &mountedTwice, nil)
		next.ServeHTTP(w, x.in)
		return
	}
	x.cookie = formCookie(x.in)
	var compared []byte // what every repeat must have, too; nil for Dedupe, whose key it is
	if g.key != nil {
		compared = sum[:]
	}
	claimed, earlier, err := g.locker.Begin(ctx, x.keys[0], compared, &s)
	failed, waited := err.(*lock.FailedRunError) //nolint:errorlint // the cause of the request's context may be one, of another key
	switch {
	case waited:
		g.replayFailure(x, failed.Err)
	case err != nil:
		g.refuseRun(x, onceProblem(err, compared))
	case claimed == nil:
		g.replayRun(x, earlier.Receipt, earlier.Left)
	case lock.Attempt(claimed.Context()) == 0: // the store did not answer, and the Locker fails open
		defer func() { _, _, _ = claimed.Settle(ctx, nil) }()
		if g.secret != nil { // the keys of its calls keep a repeat from a second effect there
			*x.in = *x.in.WithContext(context.WithValue(x.in.Context(), submission.ContextKey{}, &x.named)) // no handler has seen it yet
		}
		x.serveUnprotected(w, next)
	default:
		x.Run, x.run, x.client = claimed, x, ctx
		g.runAndAnswer(x)
	}
}

// identify returns the submission of x and the fingerprint of its content, and sets its key. It reads the whole body
// first, so that a slow client does not hold the key meanwhile.
func (g *guard) identify(x *run) (s lock.Submission, sum identity.Fingerprint, err error) {
	r := x.in
	var call *jsonrpc.Call // nil without JSONRPC
	if g.rpc != nil {
		if call, err = g.rpc.call(r, g.requestLimit); err != nil {
			return s, sum, err
		}
		x.awaited = call.ID
	}
	scope, err := valueOf(g.scope, r)
	if err != nil {
		return s, sum, err
	}
	var key string
	switch {
	case g.key == nil:
	case call != nil:
		key, err = g.rpc.key(call, g.key, r)
	default:
		key, err = valueOf(g.key, r)
	}
	if err != nil {
		return s, sum, err
	}
	path := identity.Path(r.URL)
	whole := g.fingerprint == nil
	if !whole {
		if _, err = bodybuf.Bytes(r, g.requestLimit); err != nil && !errors.Is(err, bodybuf.ErrConsumed) {
			return s, sum, &bodyError{err}
		}
		var chosen string
		chosen, err = valueOf(g.fingerprint, r)
		if whole = errors.Is(err, keyfunc.ErrSkip); err != nil && !whole {
			return s, sum, err
		}
		sum = identity.OfParts(chosen)
	}
	if whole { // also without the chosen parts
		var content []byte
		content, err = bodybuf.Content(r, g.requestLimit)
		switch {
		case err != nil && !errors.Is(err, bodybuf.ErrMalformed): // a malformed body is compared as it came
		case call != nil && g.fingerprint == nil:
			sum, err = identity.OfParts(call.Content(g.rpc.ignored)), nil
		default:
			sum, err = identity.OfRequest(r, path, content)
		}
		if err != nil {
			return s, sum, &bodyError{err}
		}
	}
	// Middleware inside the guard may replace POST by the method that a header names: a POST as PATCH and a POST as
	// DELETE are two requests.
	method := r.Method
	if as := strings.Join(r.Header["X-Http-Method-Override"], ", "); as != "" && method == http.MethodPost {
		method = strings.ToUpper(as)
	}
	s = lock.Submission{Scope: scope, Wait: defaultWait, Guard: g.hints.name, Method: method, Path: path, Label: scope, AskLeft: g.saysLifetime}
	if g.label != nil {
		s.Label = g.label(r)
	}
	if g.key == nil {
		key = string(sum[:])
	}
	x.keys = append(x.key[:0], identity.Of(g.kind, scope, method, path, key))
	if x.named.Secret = g.secret; g.key != nil {
		x.named.ID = x.keys[0]
	}
	if x.awaited != nil && r.Header["Accept-Encoding"] != nil { // in a compressed answer, no replay could have its own id
		r.Header = maps.Clone(r.Header)
		r.Header["Accept-Encoding"] = []string{"identity"}
	}
	return s, sum, nil
}

var errPanicked = errors.New("middleware: the handler panicked, or ended its goroutine")

// runAndAnswer runs the handler, and sends its answer, or the answer of the run that took over. It recovers no panic.
func (g *guard) runAndAnswer(x *run) {
	ctx := x.client
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
	case kept && gaveUp != nil && x.InTransaction():
		receipt, replayed, err = x.Fail(ctx, gaveUp)
	case kept && gaveUp != nil:
		receipt, replayed, err = x.Run.Settle(ctx, []byte(record.Unknown))
		err = cmp.Or(err, gaveUp)
	case kept:
		receipt, replayed, err = x.Run.Settle(ctx, receipt)
	case record.OfCaller(x.answer.Status):
		receipt, replayed, err = x.Fail(ctx, nil)
	default: // the requests that have waited would do the same work and fail, too
		receipt, replayed, err = x.Fail(ctx, &failure{slices.Clone(receipt)}) // the buffers go to other answers
	}
	switch {
	case x.answer.Streamed:
		// The answer was sent already, whether or not the receipt was settled.
	case replayed:
		x.discard()
		g.replayRun(x, receipt, 0)
	case x.answer.Err == nil && (err == nil || !kept):
		if kept {
			x.AddHeaders(x.out.Header())
		}
		x.answer.Send()
	default:
		x.discard()
		err = errors.Join(x.answer.Err, err)
		if x.InTransaction() {
			g.refuseRun(x, transactionProblem(err))
		} else {
			g.refuseRun(x, onceProblem(err, nil))
		}
	}
}

// runHandler runs the handler until its answer is complete. gaveUp is the loss of the lease if the handler then
// returned without a word: an empty 200 would call that a success.
func (g *guard) runHandler(x *run) (gaveUp error) {
	lease := x.Run.Context()
	x.request.Context, x.remembered = lease, g.locker.Keep() //nolint:fatcontext // once a request
	x.answer.Start(&g.answers, x, &x.marks, x.out)
	returned := false
	defer func() {
		if !returned {
			x.answer.Discard() // it panicked, and code that answers in its place must not find its headers
		}
		x.returned.Store(true)
		if end := x.end.Load(); end != nil { // as net/http ends the context of a request that was served
			x.mu.Lock()
			defer x.mu.Unlock()
			if x.stop != nil {
				x.stop()
			}
			end.Cancel(nil)
		}
	}()
	*x.in = *x.in.WithContext(x) // no handler has seen it yet
	x.next.ServeHTTP(&x.answer, x.in)
	returned = true
	lost, unwritten := x.Err() != nil, x.answer.Status == 0
	if lost { // a handler that looks at its context may have stopped in the middle of a stream
		x.markCutOff()
	}
	switch silent, outside := x.answer.Complete(); {
	case outside:
		g.hints.log(lease, &answeredOutside, nil)
	case silent && unwritten && lost && !x.Committed():
		gaveUp = context.Cause(x)
	case silent:
		g.hints.log(lease, &noAnswer, nil)
	}
	return gaveUp
}
