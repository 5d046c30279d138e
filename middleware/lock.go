package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/httplatch/httplatch/internal/failopen"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
)

// Lock runs one request at a time per name and key. The handler finds its
// lease with [lock.FromContext], and its request's context ends when the lease
// is lost. Duplicates are answered with 409 and never reach the handler.
//
// The name ("user", "order") keeps kinds of keys apart and labels metrics. The
// lock is that of lock.Key(name, value), so a worker that calls
// [lock.Locker.Do] with it and this route exclude each other. Settings such as
// the lease are the Locker's: pass locker.With(...) for a route of its own.
//
// A request for which key returns [keyfunc.ErrSkip] runs unguarded; "" is
// [keyfunc.ErrMissing], and every error refuses the request.
//
// Options are [WithCooldown], [WithContentionStatus], and those of type
// [Option]: [With], [WithFailOpen] and [WithErrorHandler].
//
// It panics on a nil Locker, a nil key function, a nil option, and a name that
// is empty or begins with "once:".
func Lock(l *lock.Locker, name string, key keyfunc.Func, opts ...LockOption) func(http.Handler) http.Handler {
	switch {
	case l == nil:
		panic("middleware.Lock: nil *lock.Locker")
	case name == "":
		panic(`middleware.Lock: empty name: say what the key is, like "user" or "order"`)
	case strings.HasPrefix(name, "once:"):
		panic(fmt.Sprintf("middleware.Lock: name %q: the Locker keeps keys that begin with once: for receipts", name))
	case key == nil:
		panic("middleware.Lock: nil key function")
	}
	g := &guard{
		locker:  l,
		key:     key,
		refuser: refuser{name: name},
		lockConfig: lockConfig{
			settings:   settings{onError: sendProblem},
			contention: http.StatusConflict,
		},
	}
	for _, o := range opts {
		if o == nil {
			panic("middleware.Lock: nil option")
		}
		o.applyLock(&g.lockConfig)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if safe(r.Method) {
				next.ServeHTTP(w, r)
				return
			}
			g.serve(w, r, next)
		})
	}
}

// safe methods ask for no effect, so there is nothing to guard.
func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// guard is what one call of Lock built.
type guard struct {
	locker *lock.Locker
	key    keyfunc.Func
	refuser
	lockConfig
}

func (g *guard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	// A key function that reads the body replaces it, and the request of our
	// caller is not ours to change.
	ctx := &lockContext{client: r.Context()}
	own := r.WithContext(ctx)
	defer returnForm(r, own)
	r = own
	key, err := g.keyOf(r)
	switch {
	case errors.Is(err, keyfunc.ErrSkip):
		g.locker.Report(r.Context(), lock.Event{Kind: lock.EventSkipped, Name: g.name})
		unlocked(ctx, w, r, next)
	case err != nil:
		p := keyProblem(err)
		g.locker.Report(r.Context(), lock.Event{Kind: lock.EventRejected, Name: g.name, Err: rejection{p}})
		g.refuse(w, r, &g.settings, p)
	case g.failOpen:
		g.tryLocked(ctx, w, r, next, key)
	default:
		lease, err := g.locker.Acquire(ctx.client, key)
		if err != nil {
			g.refuse(w, r, &g.settings, g.lockProblem(err))
			return
		}
		g.locked(ctx, w, r, next, lease)
	}
}

// tryLocked runs next under the lock, or without it if the store does not
// answer.
func (g *guard) tryLocked(ctx *lockContext, w http.ResponseWriter, r *http.Request, next http.Handler, key string) {
	var hold failopen.Hold
	lease, err := g.locker.Acquire(failopen.With(ctx.client, &hold), key)
	if hold.End != nil {
		defer hold.End()
	}
	switch {
	case err == nil:
		g.locked(ctx, w, r, next, lease)
	case unanswered(err) && ctx.Err() == nil:
		unlocked(ctx, w, r, next)
	default:
		g.refuse(w, r, &g.settings, g.lockProblem(err))
	}
}

// unanswered reports whether the store did not serve a call, so that
// WithFailOpen applies. A store that cannot do what is asked of it has answered.
func unanswered(err error) bool {
	return errors.Is(err, lock.ErrUnavailable) && !errors.Is(err, errors.ErrUnsupported)
}

// unlocked runs next without a lock, and with nothing of ours around it.
func unlocked(ctx *lockContext, w http.ResponseWriter, r *http.Request, next http.Handler) {
	plain := r.WithContext(ctx.client)
	defer returnForm(r, plain)
	next.ServeHTTP(w, plain)
}

// locked runs next under lease. The lease ends in a deferred call that does
// not recover: panics keep their value and their stack, and runtime.Goexit
// releases too. It ends before net/http, to which this returns, sends the end
// of a buffered answer.
func (g *guard) locked(ctx *lockContext, w http.ResponseWriter, r *http.Request, next http.Handler, lease *lock.Lease) {
	ctx.lease.Store(lease)
	if g.cooldown == 0 {
		defer release(ctx.client, lease)
		next.ServeHTTP(w, r)
		return
	}

	watched := &statusWriter{ResponseWriter: w}
	returned := false
	defer func() {
		if !returned || watched.failed() {
			release(ctx.client, lease)
			return
		}
		// The Locker completes a settle that the store does not answer, and if
		// the lease was lost there is nothing left to cool down.
		_ = lease.Settle(ctx.client, nil, g.cooldown)
	}()
	next.ServeHTTP(watched, r)
	returned = true
}

// returnForm gives the files of a multipart form that the handler has parsed to
// the request of net/http, which removes those of its own request only.
func returnForm(own, copied *http.Request) {
	if own.MultipartForm == nil {
		own.MultipartForm = copied.MultipartForm
	}
}

// release frees the key. Its error changes nothing for the answer: the Locker
// completes a release that the store does not answer, and reports a lost lease
// itself.
func release(ctx context.Context, lease *lock.Lease) { _ = lease.Release(ctx) }
