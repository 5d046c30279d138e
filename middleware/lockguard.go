package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
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
	key  keyfunc.Func // of Lock
	keys keyfunc.Set  // of LockAll
	guardCore
	lockConfig
}

// newLockGuard returns a guard without its key function, which the caller sets.
func newLockGuard(constructor string, l *lock.Locker, name string, opts []LockOption) *lockGuard {
	if l == nil {
		panic("middleware." + constructor + ": nil *lock.Locker")
	}
	must(setting.ValidateName(name), constructor)
	g := &lockGuard{
		guardCore:  guardCore{hints: hint.Hints{Name: name}},
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
	g.locker = g.lockerWith(l)
	g.hints.Init(g.locker)
	return g
}

// serve guards one request. The handler runs unguarded if the key function returns ErrSkip, or if
// outer guards of the request already hold the keys.
func (g *lockGuard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	ctx := r.Context()
	x := &guarded{guard: &g.guardCore, outer: outerOf(ctx), request: *r}
	own := &x.request
	defer handBack(r, own)
	err := g.identify(x)
	own.Trailer = r.Trailer // after reading the body, trailers that were not announced are in the server's request only
	if err != nil {
		g.serveUnclaimed(w, own, next, err)
		return
	}
	if x.outer != nil {
		x.keys = slices.DeleteFunc(x.keys, x.heldOutside)
	}
	if len(x.keys) == 0 {
		g.hints.MountedTwice(ctx)
		next.ServeHTTP(w, own)
		return
	}
	switch lease, protected, err := g.acquire(ctx, x.keys); {
	case err != nil:
		g.refuse(w, own, lockProblem(err, &g.lockConfig))
	case !protected: // the store did not answer, and the Locker fails open
		defer func() { _ = lease.Release(ctx) }()
		x.serveUnprotected(w, next)
	default:
		g.runHandler(w, x, next, lease)
	}
}

// identify sets the keys of x, and with WithBodyFirst reads the body before they are claimed. The error
// comes from the key function, or says that a key or the body is not acceptable.
func (g *lockGuard) identify(x *guarded) (err error) {
	r := &x.request
	if g.bodyFirst > 0 {
		bodybuf.Limit(r, g.bodyFirst)
	}
	if g.keys != nil {
		x.keys, err = g.keys(r)
		x.keys = slices.Clone(x.keys)
	} else {
		x.key[0], err = g.key(r)
		x.keys = x.key[:]
	}
	if err != nil {
		return err
	}
	if len(x.keys) == 0 || slices.Contains(x.keys, "") {
		return keyfunc.ErrMissing
	}
	for i, value := range x.keys {
		if x.keys[i], err = g.keyOf(value); err != nil {
			return err
		}
	}
	if g.bodyFirst > 0 {
		// A body that was read outside is no longer slow, and the key may not depend on it.
		if _, err := bodybuf.Bytes(r, g.bodyFirst); err != nil && !errors.Is(err, bodybuf.ErrConsumed) {
			return &bodyError{err}
		}
	}
	return nil
}

// permitMark ends the key of a request with permits: a permit is not the key itself.
const permitMark = "#"

// keyOf returns the key of a value.
func (g *lockGuard) keyOf(value string) (string, error) {
	key, most, mark := keytext.Compose(g.hints.Name, value), keytext.MaxBytes, ""
	if g.permits > 0 {
		most, mark = most-keytext.SlotBytes, permitMark
	}
	if len(key) > most {
		return "", &keyfunc.Error{
			Status: http.StatusBadRequest,
			Err:    fmt.Errorf("middleware: key of %d bytes, at most %d are allowed; see keyfunc.Hash", len(key), most),
			Detail: "The value is too long.",
		}
	}
	return key + mark, nil
}

// hold is a *lock.Lease or a *lock.Set.
type hold interface {
	Context() context.Context
	Settle(ctx context.Context, receipt []byte, keep time.Duration) error
	Release(ctx context.Context) error
}

// acquire claims all keys, or a permit. protected is false if the store did not answer and the
// Locker fails open.
func (g *lockGuard) acquire(ctx context.Context, keys []string) (_ hold, protected bool, err error) {
	if g.keys != nil {
		set, err := g.locker.AcquireAll(ctx, keys)
		if err != nil {
			return nil, false, err
		}
		found, _ := lock.SetFromContext(set.Context())
		return set, found == set, nil
	}
	var lease *lock.Lease
	if g.permits > 0 {
		lease, err = g.locker.AcquireAny(ctx, keytext.Slots(strings.TrimSuffix(keys[0], permitMark), g.permits))
	} else {
		lease, err = g.locker.Acquire(ctx, keys[0])
	}
	if err != nil {
		return nil, false, err
	}
	found, _ := lock.FromContext(lease.Context())
	return lease, found == lease, nil
}

// runHandler runs next under lease. The lease ends in a deferred call that does not recover: panics keep
// their value and their stack, and runtime.Goexit also ends the lease. The lease ends before
// net/http sends the end of a buffered answer. Its errors do not change the answer: the Locker completes
// a call that the store does not answer, and reports a lost lease itself.
func (g *lockGuard) runHandler(w http.ResponseWriter, x *guarded, next http.Handler, lease hold) {
	ctx := x.request.Context()
	x.Context = lease.Context()
	x.request = *x.request.WithContext(x) // no handler has seen it yet
	var watched *recorder.StatusWriter
	if g.cooldown > 0 || g.unknownHold > 0 || recorder.IsOfFiber(w) {
		watched = &recorder.StatusWriter{ResponseWriter: w}
		w = watched
	}
	answered := false
	defer func() {
		x.returned.Store(true)
		var receipt []byte
		keep := g.cooldown
		if !answered || x.marks.DoNotKeep.Load() {
			keep = 0
		}
		if x.unknown.Load() && g.unknownHold > keep {
			receipt, keep = record.Unknown(), g.unknownHold
		}
		if keep == 0 {
			_ = lease.Release(ctx)
			return
		}
		_ = lease.Settle(ctx, receipt, keep) // after a lost lease there is no cool-down
	}()
	next.ServeHTTP(w, &x.request)
	if x.Err() != nil { // the handler may have stopped in the middle of a stream
		x.outer.markCutOff()
	}
	if watched == nil {
		return
	}
	if watched.Code == 0 {
		var outside bool
		if watched.Code, outside = recorder.AnsweredOutside(watched.ResponseWriter); outside {
			g.hints.AnsweredOutside(x.Context)
		}
	}
	answered = watched.Code < http.StatusBadRequest
}
