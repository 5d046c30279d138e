package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// spyStore reports when a receipt is settled, and can refuse to settle it.
type spyStore struct {
	lock.Store
	settle func(ctx context.Context) (ok bool, err error) // called before the store; if it fails, the store is not asked
	done   chan struct{}                                  // closed once something was settled
}

func spyOn(store lock.Store) *spyStore { return &spyStore{Store: store, done: make(chan struct{})} }

func (s *spyStore) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	if s.settle != nil {
		if ok, err := s.settle(ctx); err != nil || !ok {
			return ok, err
		}
	}
	ok, err := s.Store.Settle(ctx, key, c, receipt, keep)
	if ok && err == nil {
		select {
		case <-s.done:
		default:
			close(s.done)
		}
	}
	return ok, err
}

func (s *spyStore) settled() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// watchful sees whether something leaves before the outcome is recorded.
type watchful struct {
	http.ResponseWriter
	store    *spyStore
	tooEarly *atomic.Bool
}

func (w *watchful) Write(p []byte) (int, error) {
	w.look()
	return w.ResponseWriter.Write(p)
}

func (w *watchful) FlushError() error {
	w.look()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *watchful) Flush() { _ = w.FlushError() }

func (w *watchful) look() {
	if !w.store.settled() {
		w.tooEarly.Store(true)
	}
}

// TestTooEarlyIsSeen is the twin of the tests with watchful: without a guard, the same handlers
// are caught.
func TestTooEarlyIsSeen(t *testing.T) {
	t.Parallel()
	for name, tt := range unreplayable {
		var tooEarly atomic.Bool
		tt.answer(&watchful{httptest.NewRecorder(), spyOn(memstore.New()), &tooEarly}, keyed("k"))
		require.True(t, tooEarly.Load(), name)
	}
}

// unreplayable are handlers whose answer cannot be kept, and the answer that
// their first client gets.
var unreplayable = map[string]struct {
	answer http.HandlerFunc
	want   string
}{
	"one byte too long": {func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/orders/7")
		_, _ = io.WriteString(w, strings.Repeat("x", 101))
	}, strings.Repeat("x", 101)},
	"too long in pieces": {func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/orders/7")
		w.WriteHeader(http.StatusCreated)
		for range 101 {
			_, _ = w.Write([]byte("x"))
		}
	}, strings.Repeat("x", 101)},
	"too long by io.Copy": {func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/orders/7")
		_, _ = io.Copy(w, strings.NewReader(strings.Repeat("x", 1000)))
	}, strings.Repeat("x", 1000)},
	"announced trailers": {func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/orders/7")
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "summed")
		w.Header().Set("X-Sum", "1")
	}, "summed"},
	"trailers by prefix": {func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/orders/7")
		_, _ = io.WriteString(w, "summed")
		w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
	}, "summed"},
}

// TestUnreplayableAnswersNeverRunAgain is about answers that cannot be kept:
// their effect still happens once.
func TestUnreplayableAnswersNeverRunAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range unreplayable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var e effects
			var tooEarly atomic.Bool
			store := spyOn(memstore.New())
			l := newLocker(t, store, patient)
			guarded := once(l, latch.WithBodyLimits(100, 100))(e.then(tt.answer))
			server := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				guarded.ServeHTTP(&watchful{w, store, &tooEarly}, r)
			}))
			res, err := server.Client().Do(clientRequest(t, server.URL, "k"))
			require.NoError(t, err)
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, tt.want, string(body))
			require.False(t, tooEarly.Load(), "settled before the first byte")
			require.Equal(t, "/orders/7", res.Header.Get("Location"))
			for range 2 {
				w := serve(guarded, keyed("k"))
				require.Equal(t, "/orders/7", w.Header().Get("Location"))
				w.Header().Del("Location")
				requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, w)
			}
			e.require(t, 1)
		})
	}
}

func clientRequest(t *testing.T, url, key string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/orders", strings.NewReader(`{"sku":"x"}`))
	require.NoError(t, err)
	r.Header = keyed(key).Header
	return r
}

// TestWhatCannotBeSentEarlyIsKept: where there is no flushing and no hijacking,
// the attempt costs nothing.
func TestWhatCannotBeSentEarlyIsKept(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	var e effects
	h := once(l)(e.then(func(w http.ResponseWriter, _ *http.Request) {
		rc := http.NewResponseController(w)
		require.ErrorIs(t, rc.Flush(), errors.ErrUnsupported)
		_, _, err := rc.Hijack()
		require.ErrorIs(t, err, errors.ErrUnsupported)
		_, _ = io.WriteString(w, "kept")
		require.ErrorIs(t, rc.Flush(), errors.ErrUnsupported)
	}))
	for _, replayed := range []string{"", "true"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(struct{ http.ResponseWriter }{w}, keyed("k"))
		require.Equal(t, "kept", w.Body.String())
		require.Equal(t, replayed, w.Header().Get("Idempotent-Replayed"))
	}
	e.require(t, 1)
}

// TestFailuresMayStream: a failure, which is never kept, is sent as it is
// written, and the request can be tried again.
func TestFailuresMayStream(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New(), lock.WithWait(0))
	var e effects
	h := once(l)(e.then(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "a")
		require.NoError(t, http.NewResponseController(w).Flush())
		requireProblem(t, wantProblem{status: 409, kind: "in-progress", retryAfter: "1"}, serve(once(l)(mustNotRun(t)), keyed("k")))
		if e.n.Load() == 3 {
			require.NoError(t, lock.Commit(r.Context()))
		}
	}))
	for range 3 {
		require.Equal(t, 502, serve(h, keyed("k")).Code)
	}
	e.require(t, 3)
	requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, serve(h, keyed("k")))
}

// TestFlushThroughOuterWriters: a writer that only unwraps can be flushed too.
func TestFlushThroughOuterWriters(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.NoError(t, http.NewResponseController(w).Flush())
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(&unwrapping{w}, keyed("k"))
	require.True(t, w.Flushed)
	requireReplay(t, w, serve(h, keyed("k")))
}

type unwrapping struct{ w http.ResponseWriter }

func (u *unwrapping) Header() http.Header         { return u.w.Header() }
func (u *unwrapping) WriteHeader(status int)      { u.w.WriteHeader(status) }
func (u *unwrapping) Write(p []byte) (int, error) { return u.w.Write(p) }
func (u *unwrapping) Unwrap() http.ResponseWriter { return u.w }

// TestFlushBehindTheHandler: a goroutine that uses the writer after the handler has returned gets
// an error, for any answer.
func TestFlushBehindTheHandler(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 422} {
		var left http.ResponseWriter
		h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			left = w
			w.WriteHeader(status)
		}))
		require.Equal(t, status, serve(h, keyed("k")).Code)
		require.ErrorContains(t, http.NewResponseController(left).Flush(), "has returned")
	}
}
