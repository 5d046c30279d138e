package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/hint"
	"github.com/httplatch/httplatch/middleware/internal/record"
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
// A client that can name a key holds it for as long as its request takes. So authorise requests
// outside, or an outsider can lock out the owner. If the handler reads a body, a client that
// sends the body slowly holds the key until the ReadTimeout of the server: [WithBodyFirst]
// prevents this.
//
// The handler's context ends when the client goes away, even in the middle of the work. This
// happens at a second click on a form: the browser gives up the first request. The second
// request is refused while the first still runs. If it arrives later, it runs.
// With a Locker that has [lock.WithDetached], the work of the first request goes on, as behind
// [Idempotent] and [Dedupe].
//
// The key is free when the handler returns. [http.TimeoutHandler] returns before the
// handler that it runs, so it goes outside of Lock: inside, its 503 frees the key, and
// another request runs while the handler is still running. Lock logs an error, once, if
// it wraps a TimeoutHandler, or if a handler behind it asks its context for a value, or
// for its lease, after Lock has returned. A goroutine of the handler that goes on after the
// answer does not hold the lock either.
//
// Options are [WithPermits], [WithCooldown], [WithCooldownStatus], [WithContentionStatus],
// [WithUnknownHold], [WithBodyFirst], and every [Option]: [With], [WithFailOpen],
// [WithFailClosed] and [WithErrorHandler].
//
// It panics on a nil Locker, a nil key function, a nil option, and a name that is empty
// or begins with "once:".
func Lock(l *lock.Locker, name string, key keyfunc.Func, opts ...LockOption) func(http.Handler) http.Handler {
	g := newGuard("Lock", l, name, key == nil, opts)
	g.key, g.claim = key, g.claimKey
	return func(next http.Handler) http.Handler { return g.wrap(next, g.serve) }
}

// LockAll is [Lock] for several keys of one request: the handler runs only while all of them are
// held. The locked keys are lock.Key(name, value) for each value of keys. They are claimed as by
// [lock.Locker.AcquireAll], so requests that share a key exclude each other and never wait for
// each other in a circle. The handler finds its set with [lock.SetFromContext].
//
//	perItem := latch.LockAll(locker, "item", keyfunc.Each("/items/*/sku"))
//
// A request is refused if one of its keys is held or cools down, with the answers of Lock.
// After an answer below 400, [WithCooldown] keeps all keys taken. If an outer guard of the
// request holds one of the keys, that key is not claimed again.
//
// Everything else is as for Lock. LockAll panics where Lock does, and with [WithPermits].
func LockAll(l *lock.Locker, name string, keys keyfunc.Set, opts ...LockOption) func(http.Handler) http.Handler {
	g := newGuard("LockAll", l, name, keys == nil, opts)
	if g.permits > 0 {
		panic("middleware.LockAll: WithPermits is for Lock")
	}
	g.keys, g.claim = keys, g.claimKeys
	return func(next http.Handler) http.Handler { return g.wrap(next, g.serve) }
}

// newGuard returns a guard without its key function, which the caller sets. It panics if keyless is
// true: the constructor was called without a key function.
func newGuard(constructor string, l *lock.Locker, name string, keyless bool, opts []LockOption) *guard {
	switch {
	case l == nil:
		panic("middleware." + constructor + ": nil *lock.Locker")
	case keyless:
		panic("middleware." + constructor + ": nil key function")
	}
	must(setting.ValidateName(name), constructor)
	g := &guard{
		refuser: refuser{guardCore: guardCore{hints: hint.Hints{Name: name}}},
		lockConfig: lockConfig{
			settings:       settings{onError: sendProblem},
			cooldownStatus: kinds[ProblemCoolingDown].status,
			contention:     kinds[ProblemHeld].status,
		},
	}
	for _, o := range opts {
		if o == nil {
			panic("middleware." + constructor + ": nil option")
		}
		o.applyLock(&g.lockConfig)
	}
	g.conf = g.settings
	if g.unknownHold > 0 {
		must(setting.ValidateReceipts(l), "%s: WithUnknownHold", constructor)
	}
	g.locker = g.over(l)
	g.hints.Init(g.locker)
	return g
}

// guard is the state of one call of Lock or LockAll.
type guard struct {
	key   keyfunc.Func
	keys  keyfunc.Set // of LockAll
	claim func(ctx context.Context, r *http.Request) claimResult
	refuser
	lockConfig
}

// keyOf returns the lock's key for r. The error comes from the key function, or says that the key
// or the body is not acceptable.
func (g *guard) keyOf(r *http.Request) (string, error) {
	if g.bodyFirst > 0 {
		bodybuf.Limit(r, g.bodyFirst)
	}
	value, err := call(g.key, r)
	if err != nil {
		return "", err
	}
	key, err := g.compose(value)
	if err != nil {
		return "", err
	}
	return key, g.readBody(r)
}

// keysOf is keyOf for a set.
func (g *guard) keysOf(r *http.Request) ([]string, error) {
	if g.bodyFirst > 0 {
		bodybuf.Limit(r, g.bodyFirst)
	}
	values, err := g.keys(r)
	if err != nil {
		return nil, err
	}
	if len(values) == 0 || slices.Contains(values, "") {
		return nil, keyfunc.ErrMissing
	}
	keys := make([]string, len(values))
	for i, value := range values {
		if keys[i], err = g.compose(value); err != nil {
			return nil, err
		}
	}
	return keys, g.readBody(r)
}

// compose returns the key of a value.
func (g *guard) compose(value string) (string, error) {
	key := lock.Key(g.hints.Name, value)
	most := keytext.MaxBytes
	if g.permits > 0 {
		most -= keytext.SlotBytes
	}
	if len(key) > most {
		return "", &keyfunc.Error{
			Status: http.StatusBadRequest,
			Err:    fmt.Errorf("middleware: key of %d bytes, at most %d are allowed; see keyfunc.Hash", len(key), most),
			Detail: "The value is too long.",
		}
	}
	return key, nil
}

// readBody reads the body before the key is claimed, if that is set.
func (g *guard) readBody(r *http.Request) error {
	if g.bodyFirst == 0 {
		return nil
	}
	// A body that was read outside is not slow, and the key may not need it.
	if _, err := bodybuf.Bytes(r, g.bodyFirst); err != nil && !errors.Is(err, bodybuf.ErrConsumed) {
		return &bodyError{err}
	}
	return nil
}

// serve guards one request. The handler runs unguarded if the key function returns ErrSkip, or if
// an outer guard of the request already holds the key.
func (g *guard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	x := &lockedRequest{request: *r}
	own := &x.request
	defer handBack(r, own)
	ctx := r.Context()
	c := g.claim(ctx, own)
	own.Trailer = r.Trailer // after reading the body, trailers that were not announced are in the server's request only
	switch {
	case c.keyErr != nil:
		g.serveKeyless(w, own, next, c.keyErr)
	case c.err != nil:
		g.refuse(w, own, lockProblem(c.err, &g.lockConfig))
	case c.lease == nil:
		g.hints.MountedTwice(ctx)
		next.ServeHTTP(w, own)
	default:
		g.locked(ctx, w, x, next, c.lease, c.protected)
	}
}

// claimResult is the result of a request's claim.
type claimResult struct {
	lease     leaseOrSet // nil with an error, and if outer guards hold all keys
	protected bool       // false if the store did not answer and the Locker fails open
	keyErr    error      // of the key function, or of a key or a body that is not acceptable
	err       error      // of the claim
}

// claimKey claims the key of r, or a permit of it.
func (g *guard) claimKey(ctx context.Context, r *http.Request) claimResult {
	key, err := g.keyOf(r)
	if err != nil {
		return claimResult{keyErr: err}
	}
	claimed := key
	if g.permits > 0 {
		claimed += "#" // a permit is not the key itself
	}
	if lockedOf(ctx).within(claimed, g.locker.Store()) {
		return claimResult{}
	}
	lease, err := g.acquire(ctx, key)
	if err != nil {
		return claimResult{err: err}
	}
	found, _ := lock.FromContext(lease.Context())
	return claimResult{lease: lease, protected: found == lease}
}

// acquire takes key, or a permit of it.
func (g *guard) acquire(ctx context.Context, key string) (*lock.Lease, error) {
	if g.permits > 0 {
		return g.locker.AcquireAny(ctx, keytext.Slots(key, g.permits))
	}
	return g.locker.Acquire(ctx, key)
}

// claimKeys claims all keys of r that no outer guard has.
func (g *guard) claimKeys(ctx context.Context, r *http.Request) claimResult {
	keys, err := g.keysOf(r)
	if err != nil {
		return claimResult{keyErr: err}
	}
	outer := lockedOf(ctx)
	keys = slices.DeleteFunc(keys, func(key string) bool { return outer.within(key, g.locker.Store()) })
	if len(keys) == 0 {
		return claimResult{}
	}
	set, err := g.locker.AcquireAll(ctx, keys)
	if err != nil {
		return claimResult{err: err}
	}
	found, _ := lock.SetFromContext(set.Context())
	return claimResult{lease: set, protected: found == set}
}

// serveKeyless serves a request whose key function has returned err.
func (g *guard) serveKeyless(w http.ResponseWriter, own *http.Request, next http.Handler, err error) {
	if !errors.Is(err, keyfunc.ErrSkip) {
		g.reject(w, own, err)
		return
	}
	g.locker.Report(own.Context(), lock.Event{Kind: lock.EventSkipped, Name: g.hints.Name})
	bodybuf.Unlimit(own)
	next.ServeHTTP(w, own)
}

// leaseOrSet is a *lock.Lease or a *lock.Set.
type leaseOrSet interface {
	Context() context.Context
	Settle(ctx context.Context, receipt []byte, keep time.Duration) error
	Release(ctx context.Context) error
}

// locked runs next under lease. The lease ends in a deferred call that does not recover: panics
// keep their value and their stack, and runtime.Goexit also ends the lease. The lease ends before
// net/http sends the end of a buffered answer.
func (g *guard) locked(ctx context.Context, w http.ResponseWriter, x *lockedRequest, next http.Handler, lease leaseOrSet, protected bool) {
	if !protected {
		defer release(ctx, lease)
		next.ServeHTTP(w, &x.request)
		return
	}
	work := lease.Context()
	x.context.init(&g.guardCore, lease)
	x.request = *x.request.WithContext(&x.context) // no handler has seen it yet
	if g.cooldown == 0 && g.unknownHold == 0 && !recorder.IsOfFiber(w) {
		defer release(ctx, lease)
		x.serve(w, next)
		return
	}

	watched := &recorder.StatusWriter{ResponseWriter: w}
	returned := false
	defer func() {
		var receipt []byte
		keep := g.cooldown
		if !returned || x.context.doNotKeep.Load() || watched.Code >= 400 {
			keep = 0
		}
		if x.context.unknown.Load() && g.unknownHold > keep {
			receipt, keep = record.Unknown(), g.unknownHold
		}
		if keep == 0 {
			release(ctx, lease)
			return
		}
		// The Locker completes a settle that the store does not answer. After a lost
		// lease there is no cool-down.
		_ = lease.Settle(ctx, receipt, keep)
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
func release(ctx context.Context, lease leaseOrSet) { _ = lease.Release(ctx) }
