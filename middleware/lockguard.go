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

// lockGuard is the state of one call of Lock or LockAll.
type lockGuard struct {
	key   keyfunc.Func // of Lock
	keys  keyfunc.Set  // of LockAll
	claim func(ctx context.Context, r *http.Request) claimResult
	refuser
	lockConfig
}

// newLockGuard returns a guard without its key function and its claim, which the caller sets.
func newLockGuard(constructor string, l *lock.Locker, name string, opts []LockOption) *lockGuard {
	if l == nil {
		panic("middleware." + constructor + ": nil *lock.Locker")
	}
	must(setting.ValidateName(name), constructor)
	g := &lockGuard{
		refuser:    refuser{guardCore: guardCore{hints: hint.Hints{Name: name}}},
		lockConfig: lockDefaults,
	}
	for _, o := range opts {
		if o == nil {
			panic("middleware." + constructor + ": nil option")
		}
		o.applyLock(&g.lockConfig)
	}
	g.conf = &g.settings
	if g.unknownHold > 0 {
		must(setting.ValidateReceipts(l), "%s: WithUnknownHold", constructor)
	}
	g.locker = g.over(l)
	g.hints.Init(g.locker)
	return g
}

// keyOf returns the lock's key for r. The error comes from the key function, or says that the key
// or the body is not acceptable.
func (g *lockGuard) keyOf(r *http.Request) (string, error) {
	if g.bodyFirst > 0 {
		bodybuf.Limit(r, g.bodyFirst)
	}
	value, err := valueOf(g.key, r)
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
func (g *lockGuard) keysOf(r *http.Request) ([]string, error) {
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
func (g *lockGuard) compose(value string) (string, error) {
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

// readBody reads the body before the key is claimed, if WithBodyFirst is set.
func (g *lockGuard) readBody(r *http.Request) error {
	if g.bodyFirst == 0 {
		return nil
	}
	// A body that was read outside is no longer slow, and the key may not depend on it.
	if _, err := bodybuf.Bytes(r, g.bodyFirst); err != nil && !errors.Is(err, bodybuf.ErrConsumed) {
		return &bodyError{err}
	}
	return nil
}

// serve guards one request. The handler runs unguarded if the key function returns ErrSkip, or if
// an outer guard of the request already holds the key.
func (g *lockGuard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	x := &locked{request: *r, guard: &g.guardCore}
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
		x.lease = c.lease
		g.run(ctx, w, x, next, c.protected)
	}
}

// claimResult is the result of a request's claim.
type claimResult struct {
	lease     leaseOrSet // nil on error, or if all keys are held further out
	protected bool       // false if the store did not answer and the Locker fails open
	keyErr    error      // of the key function, or of a key or a body that is not acceptable
	err       error      // of the claim
}

// claimKey claims the key of r, or a permit of it.
func (g *lockGuard) claimKey(ctx context.Context, r *http.Request) claimResult {
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
	var lease *lock.Lease
	if g.permits > 0 {
		lease, err = g.locker.AcquireAny(ctx, keytext.Slots(key, g.permits))
	} else {
		lease, err = g.locker.Acquire(ctx, key)
	}
	if err != nil {
		return claimResult{err: err}
	}
	found, _ := lock.FromContext(lease.Context())
	return claimResult{lease: lease, protected: found == lease}
}

// claimKeys claims all keys of r that no outer guard has.
func (g *lockGuard) claimKeys(ctx context.Context, r *http.Request) claimResult {
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
func (g *lockGuard) serveKeyless(w http.ResponseWriter, own *http.Request, next http.Handler, err error) {
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

// run runs next under the lease of x. The lease ends in a deferred call that does not recover: panics
// keep their value and their stack, and runtime.Goexit also ends the lease. The lease ends before
// net/http sends the end of a buffered answer.
func (g *lockGuard) run(ctx context.Context, w http.ResponseWriter, x *locked, next http.Handler, protected bool) {
	lease := x.lease
	if !protected {
		defer release(ctx, lease)
		next.ServeHTTP(w, &x.request)
		return
	}
	work := lease.Context()
	x.Context = work
	x.request = *x.request.WithContext(x) // no handler has seen it yet
	if g.cooldown == 0 && g.unknownHold == 0 && !recorder.IsOfFiber(w) {
		defer release(ctx, lease)
		x.serve(w, next)
		x.noteCutOff(ctx)
		return
	}

	watched := &recorder.StatusWriter{ResponseWriter: w}
	returned := false
	defer func() {
		var receipt []byte
		keep := g.cooldown
		if !returned || x.doNotKeep.Load() || watched.Code >= 400 {
			keep = 0
		}
		if x.unknown.Load() && g.unknownHold > keep {
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
	x.noteCutOff(ctx)
	if watched.Code == 0 {
		var outside bool
		if watched.Code, outside = recorder.AnsweredOutside(w); outside {
			g.hints.AnsweredOutside(work)
		}
	}
}

// noteCutOff notes in the runs of the guards further out, which ctx belongs to, that the lease was lost:
// the handler may have stopped in the middle of a stream.
func (c *locked) noteCutOff(ctx context.Context) {
	if r := runOf(ctx); r != nil && c.Err() != nil {
		r.markCutOff()
	}
}

// release frees the key. Its error does not change the answer: the Locker completes a
// release that the store does not answer, and reports a lost lease itself.
func release(ctx context.Context, lease leaseOrSet) { _ = lease.Release(ctx) }
