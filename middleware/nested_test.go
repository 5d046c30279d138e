package middleware_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestRefusalByInnerGuardIsNotKept: it says what was so at that moment. It is
// recognized by the guard that refused, since its status can be any.
func TestRefusalByInnerGuardIsNotKept(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"409": 409, "423": 423, "200 by an error handler": 200} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLocker(t, memstore.New())
			var e effects
			inner := latch.Lock(l, "user", byUser, latch.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, _ *latch.Problem) {
				w.WriteHeader(status)
			}))
			h := once(l)(inner(http.HandlerFunc(e.answer)))
			lease, err := l.Acquire(t.Context(), lock.Key("user", "42"))
			require.NoError(t, err)
			require.Equal(t, status, serve(h, keyed("k")).Code)
			require.Equal(t, status, serve(h, keyed("k")).Code)
			e.require(t, 0)
			require.NoError(t, lease.Release(t.Context()))
			require.Equal(t, 201, serve(h, keyed("k")).Code)
			require.Equal(t, "true", serve(h, keyed("k")).Header().Get("Idempotent-Replayed"))
			e.require(t, 1)
		})
	}
}

// TestRefusalIsKeptByNoGuardFurtherOut, however many there are.
func TestRefusalIsKeptByNoGuardFurtherOut(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var e effects
	inner := latch.Lock(l, "user", byUser, latch.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, _ *latch.Problem) {
		w.WriteHeader(http.StatusAccepted)
	}))
	h := latch.Dedupe(l, keyfunc.Global, time.Hour)(latch.Dedupe(l, byUser, time.Hour)(once(l)(inner(http.HandlerFunc(e.answer)))))
	lease, err := l.Acquire(t.Context(), lock.Key("user", "42"))
	require.NoError(t, err)
	require.Equal(t, 202, serve(h, keyed("k")).Code)
	require.NoError(t, lease.Release(t.Context()))
	require.Equal(t, 201, serve(h, keyed("k")).Code)
	e.require(t, 1)
}

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

// TestInnerIdempotentRefusalIsNotKept: guards may be nested.
func TestInnerIdempotentRefusalIsNotKept(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var e effects
	h := latch.Dedupe(l, byUser, time.Hour)(once(l)(http.HandlerFunc(e.answer)))
	requireProblem(t, wantProblem{status: 400, kind: "key-missing"}, serve(h, keyed("")))
	require.Equal(t, 201, serve(h, keyed("k")).Code)
	e.require(t, 1)
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

// Three guards: the refusal of the innermost must not be kept by the outermost.
func TestRefusalMarksAllOuterGuards(t *testing.T) {
	l := newLocker(t, memstore.New())
	var e effects
	h := latch.Dedupe(l, byUser, time.Hour)(once(l)(latch.Lock(l, "user", byUser)(http.HandlerFunc(e.answer))))
	lease, err := l.Acquire(t.Context(), lock.Key("user", "42"))
	require.NoError(t, err)
	require.Equal(t, 409, serve(h, keyed("k")).Code)
	require.NoError(t, lease.Release(t.Context()))
	w := serve(h, keyed("k"))
	require.Equal(t, 201, w.Code, "%v %s", w.Header(), w.Body)
}

// R1b: refused by Idempotent in the middle (in-progress), kept by the outermost.
func TestRefusalMarksAllOuterGuards2(t *testing.T) {
	l := newLocker(t, memstore.New())
	var e effects
	a := latch.Idempotent(l, keyfunc.Global, keyfunc.Header("X-A"))
	b := latch.Idempotent(l, keyfunc.Global, keyfunc.Header("X-B"))
	h := a(b(latch.Lock(l, "user", byUser)(http.HandlerFunc(e.answer))))
	hold(t, l)
	req := func() *http.Request {
		r := httptest.NewRequest("POST", "/orders", strings.NewReader("x"))
		r.Header.Set("X-A", "1")
		r.Header.Set("X-B", "1")
		r.Header.Set("X-User-ID", "42")
		return r
	}
	w := serve(h, req())
	require.Equal(t, 409, w.Code)
	w = serve(h, req())
	require.Empty(t, w.Header().Get("Idempotent-Replayed"), "%v %s", w.Header(), w.Body)
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

// The same, with a double effect: the handler is refused once inside, tries
// again, succeeds and answers 201. The answer is thrown away.
func TestInnerRefusalRetried(t *testing.T) {
	l := newLocker(t, memstore.New())
	lease, err := l.Acquire(t.Context(), lock.Key("user", "42"))
	require.NoError(t, err)
	var e effects
	inner := latch.Lock(l, "user", byUser)(http.HandlerFunc(e.answer))
	h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			rec := httptest.NewRecorder()
			inner.ServeHTTP(rec, r)
			if rec.Code != 409 {
				w.WriteHeader(rec.Code)
				return
			}
			_ = lease.Release(r.Context())
		}
	}))
	require.Equal(t, 201, serve(h, keyed("k")).Code)
	require.Equal(t, 201, serve(h, keyed("k")).Code)
	e.require(t, 1)
}
