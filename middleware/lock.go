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
	"github.com/httplatch/httplatch/internal/guardkey"
	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/record"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// Lock runs one request at a time per name and key. The handler finds its lease with [lock.FromContext], and its
// request's context ends when the lease is lost. Duplicates are answered with 409 and never reach the handler.
//
// The name ("user", "order") keeps kinds of keys apart and labels metrics. The locked key is lock.Key(name, value),
// so this route and a worker that calls [lock.Locker.Do] with that key exclude each other. Settings such as the lease
// belong to the Locker: pass locker.With(...) for one route.
//
// A request for which key returns [keyfunc.ErrSkip] runs unguarded; "" is [keyfunc.ErrMissing], and every other error
// refuses the request.
//
// A client that can name a key holds it for as long as its request takes. So authorise requests outside, or an
// outsider can lock out the owner. If the handler reads a body, a client that sends the body slowly holds the key
// until the ReadTimeout of the server: [WithBodyFirst] prevents this.
//
// The handler's context ends when the client goes away, even in the middle of the work. This happens at a second
// click on a form: the browser gives up the first request. The second request is refused while the first still runs.
// If it arrives later, it runs. With a Locker that has [lock.WithDetached], the work of the first request goes on, as
// behind [Idempotent] and [Dedupe].
//
// The key is free when the handler returns, even if a goroutine of the handler goes on. So [http.TimeoutHandler],
// which returns before the handler that it runs, goes outside of Lock. Lock logs an error, once, if it wraps a
// TimeoutHandler, or if a handler behind it asks its context for a value, or for its lease, after Lock has returned.
//
// Options are listed at [LockOption]. It panics on a nil Locker, a nil key function, a nil option, and a name that is
// empty or begins with "once:".
func Lock(l *lock.Locker, name string, key keyfunc.Func, opts ...LockOption) func(http.Handler) http.Handler {
	mustNot(key == nil, "Lock: nil key function")
	g := newLockGuard("Lock", l, name, opts)
	g.key = key
	return g.around(g.serveLocked)
}

// LockAll is [Lock] for several keys of one request: the handler runs only while all of them are held. The locked
// keys are lock.Key(name, value) for each value of keys. They are claimed as by [lock.Locker.AcquireAll], so requests
// that share a key exclude each other and never wait for each other in a circle. The handler finds its set with
// [lock.SetFromContext].
//
//	perItem := latch.LockAll(locker, "item", keyfunc.Each("/items/*/sku"))
//
// A request is refused if one of its keys is held or cools down, with the answers of Lock. After an answer below 400,
// [WithCooldown] keeps all keys taken. A key that an outer guard of the request holds is not claimed again. LockAll
// panics where Lock does, and with [WithPermits].
func LockAll(l *lock.Locker, name string, keys keyfunc.Set, opts ...LockOption) func(http.Handler) http.Handler {
	mustNot(keys == nil, "LockAll: nil key function")
	g := newLockGuard("LockAll", l, name, opts)
	mustNot(g.permits > 0, "LockAll: WithPermits is for Lock")
	g.keys = keys
	return g.around(g.serveLocked)
}

func newLockGuard(constructor string, l *lock.Locker, name string, opts []LockOption) *guard {
	mustNot(l == nil, constructor+": nil *lock.Locker")
	must(setting.ValidateName(name), constructor)
	g := new(guard)
	applyAll(constructor, &g.config, opts, LockOption.applyLock)
	if g.unknownHold > 0 {
		must(setting.ValidateReceipts(l), "%s: WithUnknownHold", constructor)
	}
	g.setUp(l, name)
	return g
}

// permitMark ends the key of a request with permits: a permit is not the key itself.
const permitMark = "#"

// serveLocked guards one request. The handler runs unguarded if the key function returns ErrSkip, or if
// outer guards of the request already hold the keys.
func (g *guard) serveLocked(w http.ResponseWriter, r *http.Request, next http.Handler) {
	ctx := r.Context()
	x := &request{guard: g, own: *r}
	x.outer, _ = ctx.Value(guardkey.Outer{}).(*request)
	defer handBack(r, &x.own)
	err := g.identifyKeys(x)
	x.own.Trailer = r.Trailer // after reading the body, trailers that were not announced are in the server's request only
	if err != nil {
		g.serveUnclaimed(w, &x.own, next, err)
		return
	}
	if x.outer != nil {
		x.keys = slices.DeleteFunc(x.keys, x.heldOutside)
	}
	if len(x.keys) == 0 {
		g.hints.log(ctx, &mountedTwice, nil)
		next.ServeHTTP(w, &x.own)
		return
	}
	switch lease, protected, err := g.acquire(ctx, x.keys); {
	case err != nil:
		g.refuse(w, &x.own, lockProblem(err, &g.config))
	case !protected: // the store did not answer, and the Locker fails open
		defer func() { _ = lease.Release(ctx) }()
		x.serveUnprotected(w, next)
	default:
		g.runLocked(w, x, next, lease)
	}
}

// identifyKeys sets the keys of x, and with WithBodyFirst reads the body before they are claimed.
func (g *guard) identifyKeys(x *request) (err error) {
	if g.bodyFirst > 0 {
		bodybuf.Limit(&x.own, g.bodyFirst)
	}
	if g.keys != nil {
		x.keys, err = g.keys(&x.own)
		x.keys = slices.Clone(x.keys)
	} else {
		x.key[0], err = g.key(&x.own)
		x.keys = x.key[:]
	}
	if err != nil {
		return err
	}
	if len(x.keys) == 0 || slices.Contains(x.keys, "") {
		return keyfunc.ErrMissing
	}
	most, mark := keytext.MaxBytes, ""
	if g.permits > 0 {
		most, mark = most-keytext.SlotBytes, permitMark
	}
	for i, value := range x.keys {
		key := keytext.Compose(g.hints.name, value)
		if len(key) > most {
			return &keyfunc.Error{
				Status: http.StatusBadRequest,
				Err:    fmt.Errorf("middleware: key of %d bytes, at most %d are allowed; see keyfunc.Hash", len(key), most),
				Detail: "The value is too long.",
			}
		}
		x.keys[i] = key + mark
	}
	if g.bodyFirst > 0 {
		// A body that was read outside is no longer slow, and the key may not depend on it.
		if _, err := bodybuf.Bytes(&x.own, g.bodyFirst); err != nil && !errors.Is(err, bodybuf.ErrConsumed) {
			return &bodyError{err}
		}
	}
	return nil
}

// hold is a *lock.Lease or a *lock.Set.
type hold interface {
	Context() context.Context
	Settle(ctx context.Context, receipt []byte, keep time.Duration) error
	Release(ctx context.Context) error
}

// acquire claims all keys, or a permit. protected is false if the store did not answer and the
// Locker fails open.
func (g *guard) acquire(ctx context.Context, keys []string) (_ hold, protected bool, err error) {
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

// runLocked runs next under lease. A deferred call ends the lease, before net/http sends the end of a buffered
// answer, so panics keep their value and their stack, and runtime.Goexit ends it, too. Errors of the end do not
// change the answer: the Locker completes a call without a reply, and reports a lost lease itself.
func (g *guard) runLocked(w http.ResponseWriter, x *request, next http.Handler, lease hold) {
	ctx := x.own.Context()
	x.Context = lease.Context()
	x.own = *x.own.WithContext(x) // no handler has seen it yet
	var watched *record.StatusWriter
	if g.cooldown > 0 || g.unknownHold > 0 || record.IsOfFiber(w) {
		watched = &record.StatusWriter{ResponseWriter: w}
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
			receipt, keep = []byte(record.Unknown), g.unknownHold
		}
		if keep == 0 {
			_ = lease.Release(ctx)
			return
		}
		_ = lease.Settle(ctx, receipt, keep) // after a lost lease there is no cool-down
	}()
	next.ServeHTTP(w, &x.own)
	if x.Err() != nil { // the handler may have stopped in the middle of a stream
		x.outer.markCutOff()
	}
	if watched == nil {
		return
	}
	if watched.Code == 0 {
		var outside bool
		if watched.Code, outside = record.AnsweredOutside(watched.ResponseWriter); outside {
			g.hints.log(x.Context, &answeredOutside, nil)
		}
	}
	answered = watched.Code < http.StatusBadRequest
}
