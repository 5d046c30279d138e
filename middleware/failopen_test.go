package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func counts(bypassed *atomic.Int64) lock.Option {
	return lock.WithObserver(func(_ context.Context, e lock.Event) {
		if e.Kind == lock.EventBypassed {
			bypassed.Add(1)
		}
	})
}

func TestFailOpen(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"not applied": lock.ErrNotApplied,
		"full":        lock.ErrFull,
		"denied":      lock.ErrDenied,
	} {
		inBubble(t, name, func(t *testing.T) {
			var down atomic.Bool
			down.Store(true)
			var bypassed atomic.Int64
			l := lock.New(flakyStore(&down, err), counts(&bypassed))
			t.Cleanup(func() { end(l) })
			guard := latch.Lock(l, "user", byUser, latch.WithFailOpen(), latch.WithCooldown(time.Minute))

			var duplicate int
			var ctx context.Context
			original := post("42").WithContext(t.Context())
			w := serve(guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx = r.Context()
				duplicate = serve(guard(mustNotRun(t)), post("42")).Code
				w.WriteHeader(http.StatusCreated)
			})), original)

			require.Equal(t, http.StatusCreated, w.Code)
			_, ok := lock.FromContext(ctx)
			require.False(t, ok, "lock.FromContext does not claim a protection that is not there")
			require.Equal(t, original.Context().Done(), ctx.Done(), "it ends with the request")
			require.Equal(t, http.StatusConflict, duplicate, "a duplicate in this process is refused all the same")
			require.EqualValues(t, 1, bypassed.Load())

			down.Store(false)
			require.Equal(t, http.StatusCreated, serve(guard(http.HandlerFunc(created)), post("42")).Code,
				"the end of the unprotected request frees the key in this process")
		})
	}
}

// TestFailOpenOfARecord: the handler runs as if there were no guard, and its answer
// is not kept. A guard further out keeps it, and Commit is for that one's run.
func TestFailOpenOfARecord(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		var bypassed atomic.Int64
		guard := once(newLocker(t, flakyStore(&down, lock.ErrNotApplied), counts(&bypassed)), latch.WithFailOpen())
		var done effects
		var seen context.Context
		var out http.ResponseWriter
		var committed error
		h := guard(done.then(func(w http.ResponseWriter, r *http.Request) {
			seen, out, committed = r.Context(), w, lock.Commit(r.Context())
			w.WriteHeader(http.StatusCreated)
			require.Equal(t, http.StatusConflict, serve(guard(mustNotRun(t)), keyed("k")).Code)
		}))
		r, w := keyed("k").WithContext(t.Context()), httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusCreated, w.Code)
		require.Equal(t, r.Context().Done(), seen.Done(), "it ends with the request")
		require.Same(t, w, out)
		require.Error(t, committed)
		require.EqualValues(t, 1, bypassed.Load())
		require.Equal(t, http.StatusCreated, serve(h, keyed("k")).Code)
		require.EqualValues(t, 2, done.n.Load(), "no record was left")

		outer := once(newLocker(t, memstore.New()))(h)
		for range 2 {
			require.Equal(t, http.StatusCreated, serve(outer, keyed("k")).Code)
		}
		require.NoError(t, committed)
		require.EqualValues(t, 3, done.n.Load())

		require.PanicsWithValue(t, "boom", func() {
			serve(guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })), keyed("k"))
		})
		down.Store(false)
		require.Equal(t, http.StatusCreated, serve(guard(http.HandlerFunc(created)), keyed("k")).Code)
	})
}

// An inner guard of a request that runs without its lock fails closed, unless it has its own option.
func TestFailOpenIsNotInherited(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		var down atomic.Bool
		var bypassed atomic.Int64
		l := newLocker(t, flakyStore(&down, lock.ErrNotApplied), counts(&bypassed))
		var inner error
		h := latch.Lock(l, "user", byUser, latch.WithFailOpen())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			down.Store(true)
			inner = l.Do(r.Context(), lock.Key("stock", "7"), func(context.Context) error { return nil })
			down.Store(false)
			w.WriteHeader(http.StatusCreated)
		}))
		require.Equal(t, http.StatusCreated, serve(h, post("42")).Code)
		require.ErrorIs(t, inner, lock.ErrUnavailable)
		require.Zero(t, bypassed.Load())
		requireFree(t, l, lock.Key("stock", "7"))
	})
}

// TestFailClosed: one route overrides the defaults of an application, or of its Locker.
func TestFailClosed(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		l := newLocker(t, unreachable(), lock.WithLogger(quiet))
		defaults := latch.With(latch.WithFailOpen())
		closed := latch.With(defaults, latch.WithFailClosed())
		for _, tt := range []struct {
			l    *lock.Locker
			opt  latch.Option
			want int
		}{{l, defaults, 201}, {l, closed, 503}, {l.With(lock.WithFailOpen()), latch.With(), 201}, {l.With(lock.WithFailOpen()), closed, 503}} {
			require.Equal(t, tt.want, serve(latch.Lock(tt.l, "user", byUser, tt.opt)(http.HandlerFunc(created)), post("42")).Code)
			require.Equal(t, tt.want, serve(once(tt.l, tt.opt)(http.HandlerFunc(created)), keyed("k")).Code)
		}
	})
}

// A store that does not support a call has answered. Fail-open is for a store
// that has not answered, also if an earlier answer was lost.
func TestFailOpenNeedsAStoreThatIsDown(t *testing.T) {
	for name, guard := range map[string]func(l *lock.Locker) guardFunc{
		"lock":       func(l *lock.Locker) guardFunc { return latch.Lock(l, "user", byUser, latch.WithFailOpen()) },
		"idempotent": func(l *lock.Locker) guardFunc { return once(l, latch.WithFailOpen()) },
	} {
		var claims atomic.Int64
		store := &stubStore{Store: memstore.New(), OnClaim: func(context.Context, string, lock.Claim) (lock.Entry, error) {
			if claims.Add(1) == 1 {
				return lock.Entry{}, io.EOF
			}
			return lock.Entry{}, errors.ErrUnsupported
		}}
		require.Equal(t, http.StatusServiceUnavailable, serve(guard(newLocker(t, store))(mustNotRun(t)), keyed("k")).Code, name)
	}
}

// An inner guard whose store does not answer is no guard, even if the outer one has a lease: it keeps no answer.
func TestFailOpenInsideOfAGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(unreachable())
		t.Cleanup(func() { end(l) })
		var e effects
		inner := once(l, latch.WithFailOpen(), latch.WithLifetimeHeader(), latch.WithName("inner"))
		h := once(newLocker(t, memstore.New()))(inner(http.HandlerFunc(e.answer)))
		for range 2 {
			w := serve(h, keyed("k"))
			require.Equal(t, http.StatusCreated, w.Code)
			require.Empty(t, w.Header().Values("Idempotency-Key-Lifetime"))
		}
		e.require(t, 1)
	})
}

// TestCallBehindAGuardInsideOfFailOpen is sent: the outer guard has no run to note it in, and the inner one has, or is a Lock.
func TestCallBehindAGuardInsideOfFailOpen(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		outer, l := once(newLocker(t, unreachable(), lock.WithLogger(quiet)), latch.WithFailOpen()), newLocker(t, memstore.New())
		for name, inner := range map[string]guardFunc{"Lock": latch.Lock(l, "user", byUser), "Dedupe": latch.Dedupe(l, byUser, time.Hour)} {
			w := serve(outer(inner(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				require.NoError(t, sendBy(t, latch.Upstream(replies(200)), ownCall(r.Context())), name)
				require.NoError(t, latch.Unknown(r.Context()), name)
				_, err := latch.Later(r.Context())
				require.Equal(t, name == "Lock", err != nil, name) // no ticket of a guard that fails open
				created(w, r)
			}))), keyed("k"))
			require.Equal(t, http.StatusCreated, w.Code, name)
		}
	})
}

// A repeat that waits for another process does not run unprotected when the store fails meanwhile.
func TestWaitingRepeatDoesNotFailOpen(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		var down atomic.Bool
		store := flakyStore(&down, lock.ErrNotApplied)
		var e effects
		handlers := make([]http.Handler, 2)
		for i := range handlers {
			handlers[i] = once(newLocker(t, store, lock.WithLogger(quiet)), latch.WithFailOpen())(e.then(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(5 * time.Second)
				created(w, r)
			}))
		}
		first := make(chan *httptest.ResponseRecorder)
		go func() { first <- serve(handlers[0], keyed("k")) }()
		synctest.Wait()
		time.AfterFunc(2*time.Second, func() { down.Store(true) })
		time.AfterFunc(4*time.Second, func() { down.Store(false) })
		requireProblem(t, wantProblem{status: 409, kind: "in-progress", retryAfter: "1"}, serve(handlers[1], keyed("k")))
		require.Equal(t, 201, (<-first).Code)
		e.require(t, 1)
	})
}
