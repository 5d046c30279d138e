package middleware_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestRefusalOnAnotherGoroutine: the inner guard may be behind a TimeoutHandler.
func TestRefusalOnAnotherGoroutine(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	hold(t, l)
	var e effects
	h := once(l)(http.TimeoutHandler(latch.Lock(l, "user", byUser)(http.HandlerFunc(e.answer)), time.Minute, ""))
	require.Equal(t, 409, serve(h, keyed("k")).Code)
	requireProblem(t, wantProblem{status: 409, kind: "held", retryAfter: "1"}, serve(h, keyed("k")))
	e.require(t, 0)
}

func TestWrongOrderIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	logger := lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil)))
	l := newLocker(t, memstore.New(), logger)

	right := once(l)(latch.Lock(l, "user", byUser, latch.WithCooldown(time.Hour))(http.HandlerFunc(created)))
	require.Equal(t, 201, serve(right, keyed("k")).Code)
	require.Empty(t, out.String())

	wrong := latch.Lock(l, "order", byUser, latch.WithCooldown(time.Nanosecond))(once(l)(http.HandlerFunc(created)))
	for range 3 {
		require.Equal(t, 201, serve(wrong, keyed("k2")).Code)
		time.Sleep(time.Microsecond)
	}
	requireLine(t, &out, "ERROR", "idempotent", "mount Idempotent and Dedupe outside Lock")
}

// Concurrent refusals by the inner guard in a batch handler; flush after refusal.
func TestInnerRefusalSwallowed(t *testing.T) {
	l := newLocker(t, memstore.New())
	hold(t, l)
	var e effects
	inner := latch.Lock(l, "user", byUser)(http.HandlerFunc(e.answer))
	h := once(l)(e.then(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		inner.ServeHTTP(rec, r) // one of several steps; a batch reports it in its own answer
		w.WriteHeader(207)
	}))
	require.Equal(t, 207, serve(h, keyed("k")).Code)
	require.Equal(t, 207, serve(h, keyed("k")).Code)
	e.require(t, 1)
}

// A process is killed in a guarded handler. The repeat takes over, and an inner Lock refuses it,
// since another request of the user runs. The next repeats are refused for the same reason, and not
// because of the takeover, and the first one after that request runs.
func TestARepeatRefusedByAnInnerLockIsTakenOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		dying := &mortalStore{Store: memory}
		rerun := []lock.Option{lock.WithLogger(quiet), lock.WithRerunAbandoned()}
		dead, alive := lock.New(dying, rerun...), lock.New(&mortalStore{Store: memory}, rerun...)
		gone := make(chan struct{})
		go func() {
			serve(once(dead)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })), keyed("k"))
			close(gone)
		}()
		synctest.Wait()
		dying.Dead.Store(true)
		<-gone
		time.Sleep(time.Second) // the lease of the dead ends in the store, too

		other, err := alive.Acquire(t.Context(), lock.Key("user", "42"))
		require.NoError(t, err)
		var e effects
		h := once(alive)(latch.Lock(alive, "user", byUser)(e.then(func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, 2, lock.Attempt(r.Context()))
			w.WriteHeader(http.StatusCreated)
		})))
		for range 3 {
			requireProblem(t, wantProblem{status: 409, kind: "held", retryAfter: "1"}, serve(h, keyed("k")))
			time.Sleep(time.Second)
		}
		require.NoError(t, other.Release(t.Context()))
		require.Equal(t, http.StatusCreated, serve(h, keyed("k")).Code)
		e.require(t, 1)
		dying.Dead.Store(false)
		end(dead)
		end(alive)
	})
}

// A handler has released the lock of its guard. An inner guard with the same key claims the key: an
// outer lock that has ended protects nothing.
func TestInnerLockAfterTheOuterOneHasEnded(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	user := latch.Lock(l, "user", byUser)
	for released, want := range map[bool]int{true: 409, false: 201} { // the inner guard refuses, or is passed
		h := user(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lease, ok := lock.FromContext(r.Context())
			require.True(t, ok)
			if released {
				require.NoError(t, lease.Release(r.Context()))
				other, err := l.Acquire(t.Context(), lock.Key("user", "42"))
				require.NoError(t, err)
				defer func() { require.NoError(t, other.Release(t.Context())) }()
				r = r.WithContext(context.WithoutCancel(r.Context()))
			}
			user(http.HandlerFunc(created)).ServeHTTP(w, r)
		}))
		require.Equal(t, want, serve(h, keyed("k")).Code)
	}
}
