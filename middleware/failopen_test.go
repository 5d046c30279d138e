package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func newCancel(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}

type eventLog struct {
	mu    sync.Mutex
	kinds []lock.EventKind
}

func (e *eventLog) observe(_ context.Context, seen lock.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kinds = append(e.kinds, seen.Kind)
}

func (e *eventLog) count(kind lock.EventKind) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, k := range e.kinds {
		if k == kind {
			n++
		}
	}
	return n
}

func TestFailOpen(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"not applied": lock.ErrNotApplied,
		"unknown":     errors.New("reply lost"),
		"full":        lock.ErrFull,
		"denied":      lock.ErrDenied,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var down atomic.Bool
				down.Store(true)
				var events eventLog
				l := lock.New(flakyStore(&down, err), lock.WithObserver(events.observe))
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
				require.Equal(t, 1, events.count(lock.EventBypassed))

				down.Store(false)
				require.Equal(t, http.StatusCreated, serve(guard(http.HandlerFunc(created)), post("42")).Code,
					"the end of the unprotected request frees the key in this process")
			})
		})
	}
}

// TestFailOpenOfARecord: the handler runs as if there were no guard, and its answer
// is not kept. A guard further out keeps it, and Commit is for that one's run.
func TestFailOpenOfARecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		var events eventLog
		l := newLocker(t, flakyStore(&down, lock.ErrNotApplied), lock.WithObserver(events.observe))
		guard := once(l, latch.WithFailOpen())
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
		require.Equal(t, 1, events.count(lock.EventBypassed))
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

// TestFailOpenIsNotInherited: an inner guard of a request that runs without its
// lock fails closed, unless it has its own option.
func TestFailOpenIsNotInherited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		var events eventLog
		l := newLocker(t, flakyStore(&down, lock.ErrNotApplied), lock.WithObserver(events.observe))
		var inner error
		h := latch.Lock(l, "user", byUser, latch.WithFailOpen())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			down.Store(true)
			inner = l.Do(r.Context(), lock.Key("stock", "7"), func(context.Context) error { return nil })
			down.Store(false)
			w.WriteHeader(http.StatusCreated)
		}))
		require.Equal(t, http.StatusCreated, serve(h, post("42")).Code)
		require.ErrorIs(t, inner, lock.ErrUnavailable)
		require.Zero(t, events.count(lock.EventBypassed))
		requireFree(t, l, lock.Key("stock", "7"))
	})
}

// TestFailClosed: one route overrides the defaults of an application, or of its
// Locker.
func TestFailClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		l := newLocker(t, flakyStore(&down, lock.ErrNotApplied), lock.WithLogger(quiet))
		defaults := latch.With(latch.WithFailOpen())
		closed := latch.With(defaults, latch.WithFailClosed())
		for want, opts := range map[int]latch.Option{http.StatusCreated: defaults, http.StatusServiceUnavailable: closed} {
			require.Equal(t, want, serve(latch.Lock(l, "user", byUser, opts)(http.HandlerFunc(created)), post("42")).Code)
			require.Equal(t, want, serve(once(l, opts)(http.HandlerFunc(created)), keyed("k")).Code)
		}

		open := l.With(lock.WithFailOpen())
		for want, opts := range map[int]latch.Option{http.StatusCreated: latch.With(), http.StatusServiceUnavailable: closed} {
			require.Equal(t, want, serve(latch.Lock(open, "user", byUser, opts)(http.HandlerFunc(created)), post("42")).Code)
			require.Equal(t, want, serve(once(open, opts)(http.HandlerFunc(created)), keyed("k")).Code)
		}
	})
}

// A store that does not support a call has answered. Fail-open is for a store
// that has not answered, also if an earlier answer was lost.
func TestFailOpenNeedsAStoreThatIsDown(t *testing.T) {
	for name, guard := range map[string]func(l *lock.Locker) http.Handler{
		"lock": func(l *lock.Locker) http.Handler {
			return latch.Lock(l, "user", keyfunc.Global, latch.WithFailOpen())(mustNotRun(t))
		},
		"idempotent": func(l *lock.Locker) http.Handler { return once(l, latch.WithFailOpen())(mustNotRun(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLocker(t, &incapable{Store: memstore.New()})
			require.Equal(t, http.StatusServiceUnavailable, serve(guard(l), keyed("k")).Code)
		})
	}
}

// incapable loses the answer to the first claim, and then answers that it does
// not support the call.
type incapable struct {
	lock.Store
	claims atomic.Int64
}

func (s *incapable) Claim(context.Context, string, lock.Claim) (lock.Entry, error) {
	if s.claims.Add(1) == 1 {
		return lock.Entry{}, io.EOF
	}
	return lock.Entry{}, errors.ErrUnsupported
}

// An inner guard whose store does not answer is no guard, although the guard around it has a lease: it
// does not say that it keeps the answer.
func TestFailOpenInsideOfAGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		l := lock.New(flakyStore(&down, lock.ErrNotApplied))
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
