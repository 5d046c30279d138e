package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/event"
	"github.com/httplatch/httplatch/middleware/internal/hint"
	"github.com/httplatch/httplatch/middleware/internal/recorder"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// Lock runs one request at a time per name and key. The handler finds its lease with
// [lock.FromContext], and its request's context ends when the lease is lost. Duplicates
// are answered with 409 and never reach the handler.
//
// The name ("user", "order") keeps kinds of keys apart and labels metrics. The locked key
// is lock.Key(name, value), so this route and a worker that calls [lock.Locker.Do] with
// that key exclude each other. Settings such as the lease belong to the Locker: pass
// locker.With(...) for one route.
//
// A request for which key returns [keyfunc.ErrSkip] runs unguarded; "" is
// [keyfunc.ErrMissing], and every other error refuses the request.
//
// A client that can name a key holds it for as long as its request takes: authorise it
// outside, or an outsider keeps the owner out. If the handler reads a body, a client that
// sends it slowly holds the key until the ReadTimeout of the server: [WithBodyFirst]
// prevents that.
//
// The handler's context ends when the client goes away, even in the middle of the work. A
// second click on a form does that: the browser gives up the first request. The second
// request is refused while the first runs, and runs if it comes later.
// With a Locker that has [lock.WithDetached], the work goes on, as behind [Idempotent]
// and [Dedupe].
//
// The key is free when the handler returns. [http.TimeoutHandler] returns before the
// handler that it runs, so it goes outside of Lock: inside, its 503 frees the key, and
// another request runs while the handler is still running. Lock logs an error, once, if
// it wraps a TimeoutHandler, or if a handler behind it asks its context for a value, or
// for its lease, after Lock has returned. A goroutine that goes on after the answer has
// no lock either.
//
// Options are [WithCooldown], [WithCooldownStatus], [WithContentionStatus],
// [WithBodyFirst], and every [Option]: [With], [WithFailOpen], [WithFailClosed] and
// [WithErrorHandler].
//
// It panics on a nil Locker, a nil key function, a nil option, and a name that is empty
// or begins with "once:".
func Lock(l *lock.Locker, name string, key keyfunc.Func, opts ...LockOption) func(http.Handler) http.Handler {
	switch {
	case l == nil:
		panic("middleware.Lock: nil *lock.Locker")
	case key == nil:
		panic("middleware.Lock: nil key function")
	}
	must(setting.ValidateName(name), "Lock")
	g := &guard{
		key:     key,
		refuser: refuser{base{hints: hint.Hints{Name: name}}},
		lockConfig: lockConfig{
			settings:       settings{onError: sendProblem},
			cooldownStatus: http.StatusTooManyRequests,
			contention:     http.StatusConflict,
		},
	}
	for _, o := range opts {
		if o == nil {
			panic("middleware.Lock: nil option")
		}
		o.applyLock(&g.lockConfig)
	}
	g.locker = g.over(l)
	g.hints.Init(g.locker)
	return func(next http.Handler) http.Handler { return g.guarded(next, g.serve) }
}

// guard is the state of one call of Lock.
type guard struct {
	key keyfunc.Func
	refuser
	lockConfig
}

// keyOf returns the lock's key for r. Its error is the key function's, or says that the
// key or the body is not acceptable.
func (g *guard) keyOf(r *http.Request) (string, error) {
	if g.bodyFirst > 0 {
		bodybuf.Limit(r, g.bodyFirst)
	}
	value, err := call(g.key, r)
	if err != nil {
		return "", err
	}
	key := lock.Key(g.hints.Name, value)
	if len(key) > keytext.MaxBytes {
		return "", &keyfunc.Error{
			Status: http.StatusBadRequest,
			Err:    fmt.Errorf("middleware: key of %d bytes, at most %d are allowed; see keyfunc.Hash", len(key), keytext.MaxBytes),
			Detail: "The value is too long.",
		}
	}
	if g.bodyFirst > 0 {
		// A body that was read outside is not slow, and the key may not need it.
		if _, err := bodybuf.Bytes(r, g.bodyFirst); err != nil && !errors.Is(err, bodybuf.ErrConsumed) {
			return "", &bodyError{err}
		}
	}
	return key, nil
}

// serve guards one request. The handler runs without a guard if the request has no key
// and may go without, or if an outer guard has its lock.
func (g *guard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	x := &lockedRequest{request: *r}
	own := &x.request
	defer handBack(r, own)
	ctx := r.Context()
	key, err := g.keyOf(own)
	own.Trailer = r.Trailer // after reading the body, trailers that were not announced are in the server's request only
	switch {
	case errors.Is(err, keyfunc.ErrSkip):
		g.locker.Report(ctx, lock.Event{Kind: event.Skipped, Name: g.hints.Name})
		bodybuf.Unlimit(own)
		next.ServeHTTP(w, own)
	case err != nil:
		g.reject(w, own, &g.settings, err)
	case lockedOf(ctx).within(key, g.locker.Store()):
		g.hints.MountedTwice(ctx)
		next.ServeHTTP(w, own)
	default:
		lease, err := g.locker.Acquire(ctx, key)
		if err != nil {
			g.refuse(w, own, &g.settings, lockProblem(err, &g.lockConfig))
			return
		}
		g.locked(ctx, w, x, next, key, lease)
	}
}

// locked runs next under lease. The lease ends in a deferred call that does not recover:
// panics keep their value and their stack, and runtime.Goexit releases, too. It ends
// before net/http sends the end of a buffered answer.
func (g *guard) locked(ctx context.Context, w http.ResponseWriter, x *lockedRequest, next http.Handler, key string, lease *lock.Lease) {
	work := lease.Context()
	if found, _ := lock.FromContext(work); found != lease {
		// The store did not answer, and the Locker fails open: next runs without a guard.
		defer release(ctx, lease)
		next.ServeHTTP(w, &x.request)
		return
	}
	x.context.init(work, &g.base, key)
	x.request = *x.request.WithContext(&x.context) // no handler has seen it yet
	if g.cooldown == 0 && !recorder.AnswersLater(w) {
		defer release(ctx, lease)
		x.serve(w, next)
		return
	}

	watched := &recorder.StatusWriter{ResponseWriter: w}
	returned := false
	defer func() {
		if g.cooldown == 0 || !returned || x.context.doNotKeep.Load() || watched.Code >= 400 {
			release(ctx, lease)
			return
		}
		// The Locker completes a settle that the store does not answer. After a lost
		// lease there is no cool-down.
		_ = lease.Settle(ctx, nil, g.cooldown)
	}()
	x.serve(watched, next)
	returned = true
	if watched.Code == 0 {
		var outside bool
		if watched.Code, outside = recorder.AnsweredOutside(w); outside {
			g.hints.AnsweredOutside(work)
		}
	}
}

// release frees the key. Its error does not change the answer: the Locker completes a
// release that the store does not answer, and reports a lost lease itself.
func release(ctx context.Context, lease *lock.Lease) { _ = lease.Release(ctx) }
