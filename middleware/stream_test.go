package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// act is a step of a handler that answers.
type act = func(w http.ResponseWriter)

func acts(steps ...act) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, step := range steps {
			step(w)
		}
	}
}

func header(name, value string) act {
	return func(w http.ResponseWriter) { w.Header().Set(name, value) }
}

func status(code int) act         { return func(w http.ResponseWriter) { w.WriteHeader(code) } }
func write(text string) act       { return func(w http.ResponseWriter) { _, _ = io.WriteString(w, text) } }
func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// spyStore sees whether a receipt is settled.
type spyStore struct {
	lock.Store
	settled atomic.Bool
}

func (s *spyStore) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	ok, err := s.Store.Settle(ctx, key, c, receipt, keep)
	if ok && err == nil {
		s.settled.Store(true)
	}
	return ok, err
}

// watched returns w, and sees whether something leaves before the outcome is recorded.
func (s *spyStore) watched(w http.ResponseWriter, tooEarly *atomic.Bool) http.ResponseWriter {
	return writerFunc{w, func() {
		if !s.settled.Load() {
			tooEarly.Store(true)
		}
	}}
}

// TestTooEarlyIsSeen is the twin of TestUnreplayableAnswersNeverRunAgain: without a guard, the same handlers are caught.
func TestTooEarlyIsSeen(t *testing.T) {
	t.Parallel()
	for name, tt := range unreplayable {
		var tooEarly atomic.Bool
		tt.answer(new(spyStore).watched(httptest.NewRecorder(), &tooEarly), keyed("k"))
		require.True(t, tooEarly.Load(), name)
	}
}

// unreplayable are handlers whose answer cannot be kept, and the answer that their first client gets.
var unreplayable = map[string]struct {
	answer http.HandlerFunc
	want   string
}{
	"one byte too long":  {acts(write(strings.Repeat("x", 101))), strings.Repeat("x", 101)},
	"too long in pieces": {acts(status(http.StatusCreated), write(strings.Repeat("x", 100)), write("x")), strings.Repeat("x", 101)},
	"too long by io.Copy": {func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, strings.NewReader(strings.Repeat("x", 1000)))
	}, strings.Repeat("x", 1000)},
	"announced trailers": {acts(header("Trailer", "X-Sum"), write("summed"), header("X-Sum", "1")), "summed"},
	"trailers by prefix": {acts(write("summed"), header(http.TrailerPrefix+"X-Sum", "1")), "summed"},
}

// TestUnreplayableAnswersNeverRunAgain is about answers that cannot be kept: their effect still happens once.
func TestUnreplayableAnswersNeverRunAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range unreplayable {
		parallel.Run(t, name, func(t *testing.T) {
			var e effects
			var tooEarly atomic.Bool
			store := &spyStore{Store: memstore.New()}
			guarded := once(newLocker(t, store, patient), latch.WithBodyLimits(100, 100))(e.then(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "/orders/7")
				tt.answer(w, r)
			}))
			server := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				guarded.ServeHTTP(store.watched(w, &tooEarly), r)
			}))
			first := exchanged(t, server, clientRequest(t, server.URL, "k"))
			require.Equal(t, tt.want, string(first.body))
			require.False(t, tooEarly.Load(), "settled before the first byte")
			require.Equal(t, "/orders/7", first.header.Get("Location"))
			w := serve(guarded, keyed("k"))
			require.Equal(t, "/orders/7", w.Header().Get("Location"))
			w.Header().Del("Location")
			requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, w)
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

// TestWhatCannotBeSentEarlyIsKept: where there is no flushing and no hijacking, the attempt costs nothing.
func TestWhatCannotBeSentEarlyIsKept(t *testing.T) {
	t.Parallel()
	var e effects
	h := once(newLocker(t, memstore.New()))(e.then(func(w http.ResponseWriter, _ *http.Request) {
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

// A failure, which is never kept, is sent as it is written, and the request can be tried again.
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
	h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.NoError(t, http.NewResponseController(w).Flush())
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(unwrapping{w}, keyed("k"))
	require.True(t, w.Flushed)
	requireReplay(t, w, serve(h, keyed("k")))
}

type unwrapping struct{ http.ResponseWriter }

func (u unwrapping) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// A goroutine that uses the writer after the handler has returned gets an error, and changes no answer.
func TestWriterBehindTheHandler(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 422} {
		var left http.ResponseWriter
		h := once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			left = w
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "first")
		}))
		first := serve(h, keyed("k"))
		require.ErrorContains(t, http.NewResponseController(left).Flush(), "has returned")
		_, _ = io.WriteString(left, "AFTER")
		left.Header().Set("Location", "/evil")
		require.Equal(t, "first", first.Body.String())
		requireReplay(t, first, serve(h, keyed("k")))
	}
}

func streamsOrFails(w http.ResponseWriter, _ *http.Request) {
	if err := http.NewResponseController(w).Flush(); err != nil {
		http.Error(w, "no stream", http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, "streamed")
}

// The writer of http.TimeoutHandler cannot flush: a flush inside of it sends nothing, and begins no cool-down.
func TestFailedFlushIsNoAnswer(t *testing.T) {
	t.Parallel()
	cool := func(l *lock.Locker) guardFunc { return latch.Lock(l, "user", byUser, latch.WithCooldown(time.Hour)) }
	for name, guards := range map[string]func(l *lock.Locker) guardFunc{
		"Lock":                 cool,
		"Idempotent in Lock":   func(l *lock.Locker) guardFunc { return nest(cool(l), once(l)) },
		"Lock in Idempotent":   func(l *lock.Locker) guardFunc { return nest(once(l), cool(l)) },
		"Idempotent in Dedupe": func(l *lock.Locker) guardFunc { return nest(latch.Dedupe(l, byUser, time.Hour), once(l)) },
	} {
		guard := guards(newLocker(t, memstore.New()))
		serveIn := func(h http.HandlerFunc) int {
			return serve(http.TimeoutHandler(guard(h), time.Minute, ""), keyed("k")).Code
		}
		require.Equal(t, http.StatusInternalServerError, serveIn(streamsOrFails), name)
		require.Equal(t, http.StatusCreated, serveIn(created), name)
	}
}

// timed is middleware that announces a trailer, and sends it in its own words for each request: the number of it.
func timed(next http.Handler) http.Handler {
	n := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Add("Trailer", "Server-Timing, X-Outer")
		w.Header().Set(http.TrailerPrefix+"X-Unannounced", strconv.Itoa(n))
		next.ServeHTTP(w, r)
		w.Header().Set("Server-Timing", "total;dur="+strconv.Itoa(n))
	})
}

// TestTrailersOfTheHandlerAreNotReplayed, whichever handler or middleware has announced them. Trailers without middleware are
// answers of TestUnreplayableAnswersNeverRunAgain.
func TestTrailersOfTheHandlerAreNotReplayed(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(h http.Header) (late func()){
		"announced by both": func(h http.Header) func() {
			h.Set("Trailer", "server-timing, X-Sum")
			return func() { h.Set("X-Sum", "1") }
		},
		"taken away": func(h http.Header) func() {
			h.Add("Trailer", "X-Sum")
			h.Set("X-Sum", "0")
			return func() { h.Del("X-Sum") }
		},
		"announced outside": func(h http.Header) func() { return func() { h.Set("X-Outer", "1") } },
		"set again before the body": func(h http.Header) func() {
			h.Set(http.TrailerPrefix+"X-Unannounced", "by the handler")
			return func() {}
		},
		"set again": func(h http.Header) func() {
			return func() { h.Set(http.TrailerPrefix+"X-Unannounced", "by the handler") }
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			for _, opts := range [][]latch.IdempotentOption{nil, {latch.WithBodyLimits(100, 1)}} {
				var e effects
				handler := func(w http.ResponseWriter, _ *http.Request) {
					late := answer(w.Header())
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, "ordered")
					late()
				}
				ask := func(h http.Handler) exchange {
					server := startServer(t, h)
					return exchanged(t, server, clientRequest(t, server.URL, "k"))
				}
				bare := ask(timed(http.HandlerFunc(handler)))
				require.NotEmpty(t, bare.trailer)
				guarded := timed(once(newLocker(t, memstore.New(), patient), opts...)(e.then(handler)))
				require.Equal(t, bare.trailer, ask(guarded).trailer)
				again := ask(guarded)
				require.Equal(t, 409, again.status)
				require.Contains(t, string(again.body), "#result-not-replayable")
				e.require(t, 1)
			}
		})
	}
}

// TestHeadersSetTooLateAreNotSent, though trailers that are set with them are.
func TestHeadersSetTooLateAreNotSent(t *testing.T) {
	t.Parallel()
	for _, flush := range []bool{false, true} {
		w := serve(once(newLocker(t, memstore.New()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("X-Late", "1")
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
			_, _ = io.WriteString(w, "ordered")
			if flush {
				_ = http.NewResponseController(w).Flush()
			}
		})), keyed("k"))
		res := w.Result()
		require.NoError(t, res.Body.Close())
		require.NotContains(t, res.Header, "X-Late")
		require.Equal(t, "1", res.Trailer.Get("X-Sum"))
	}
}
