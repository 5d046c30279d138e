package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

const crowd = 60 // duplicates that wait for the first

// crowdOf sends one request n times at once, to a handler that may panic.
func crowdOf(h http.Handler, n int) []*httptest.ResponseRecorder {
	return storm(n, func(int) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		func() {
			defer func() { _ = recover() }() // as a server does
			h.ServeHTTP(w, keyed("k"))
		}()
		return w
	})
}

// Duplicates that have waited for a request that fails get its answer, marked as not kept, and do
// not each repeat the work that has just failed.
func TestAWaitingCrowdDoesNotRepeatAFailure(t *testing.T) {
	t.Parallel()
	const body = `{"error":"the card was charged, and the answer lost"}`
	failing := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Content-Type", "application/json")
			h.Set("Retry-After", "7")
			h.Set("Set-Cookie", "session=of-the-first")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	lost := wantProblem{status: 503, kind: "first-failed", retryAfter: "1"}
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		status int          // of all
		lost   *wantProblem // the answer to the waiting requests instead, if the answer cannot be sent again
	}{
		{name: "500", answer: failing(500), status: 500},
		{name: "503 with Retry-After", answer: failing(503), status: 503},
		{name: "429", answer: failing(429), status: 429},
		{name: "a panic", answer: func(http.ResponseWriter, *http.Request) { panic("secret") }, lost: &lost},
		{name: "abandoned", answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, lost: &lost},
		{name: "a stream", lost: &lost, answer: func(w http.ResponseWriter, r *http.Request) {
			failing(500)(w, r)
			_ = http.NewResponseController(w).Flush()
		}},
		{name: "trailers", lost: &lost, answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "Digest")
			failing(500)(w, r)
			w.Header().Set("Digest", "x")
		}},
	} {
		for guard, guarded := range map[string]func(*lock.Locker) func(http.Handler) http.Handler{
			"Idempotent": func(l *lock.Locker) func(http.Handler) http.Handler { return once(l) },
			"Dedupe":     func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Dedupe(l, byUser, time.Hour) },
		} {
			t.Run(tt.name+", "+guard, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					l := newLocker(t, memstore.New(), lock.WithWait(time.Minute), lock.WithLogger(quiet))
					var e effects
					h := guarded(l)(e.then(func(w http.ResponseWriter, r *http.Request) {
						time.Sleep(time.Second)
						tt.answer(w, r)
					}))
					first := make(chan []*httptest.ResponseRecorder, 1)
					go func() { first <- crowdOf(h, 1) }()
					synctest.Wait()
					waited := crowdOf(h, crowd)
					e.require(t, 1)
					require.Empty(t, (<-first)[0].Header().Get("Idempotent-Replayed"))
					for _, w := range waited {
						if tt.lost != nil {
							requireProblem(t, *tt.lost, w)
							continue
						}
						require.Equal(t, tt.status, w.Code)
						require.Equal(t, body, w.Body.String())
						require.Equal(t, http.Header{
							"Content-Type":        {"application/json"},
							"Retry-After":         {"7"},
							"Idempotent-Replayed": {"not-kept"},
						}, w.Header())
					}
					crowdOf(h, 1)
					e.require(t, 2)
				})
			})
		}
	}
}

// A status that a header decides is an answer to its own caller: the next waiting request runs
// with its own credentials. The others get the first answer with another status.
func TestAWaitingCrowdIsNotRefusedForAnother(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 406, 407, 411, 412, 415, 416, 417, 421, 423, 426, 428, 431, 499} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var e effects
				h := once(newLocker(t, memstore.New(), lock.WithWait(time.Minute)))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(time.Second)
					if r.Header.Get("Authorization") == "" {
						w.WriteHeader(status)
						return
					}
					e.answer(w, r)
				}))
				for i, w := range storm(1+crowd, func(i int) *httptest.ResponseRecorder {
					r := keyed("k")
					if i > 0 {
						time.Sleep(time.Millisecond)
						r.Header.Set("Authorization", "Bearer 42")
					}
					return serve(h, r)
				}) {
					if i == 0 {
						require.Equal(t, status, w.Code)
						continue
					}
					require.Equal(t, http.StatusCreated, w.Code)
					require.Equal(t, "order 1", w.Body.String())
				}
				e.require(t, 1)
			})
		})
	}
}

// The refusal of an inner lock to the first goes to the requests that have waited for it, too, and
// no guard further out keeps it.
func TestAWaitingCrowdGetsTheRefusalOfAnInnerLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, memstore.New())
		waits := l.With(lock.WithWait(time.Minute))
		lease, err := l.Acquire(t.Context(), lock.Key("user", "42"))
		require.NoError(t, err)
		var e effects
		slow := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Second)
				next.ServeHTTP(w, r)
			})
		}
		var n atomic.Int64
		byCall := func(*http.Request) (string, error) { return strconv.FormatInt(n.Add(1), 10), nil }
		h := latch.Idempotent(l, byUser, byCall)(once(waits)(slow(latch.Lock(l, "user", byUser)(http.HandlerFunc(e.answer)))))
		refused := 0
		for _, w := range crowdOf(h, 1+crowd) {
			require.Equal(t, 409, w.Code)
			require.Equal(t, "1", w.Header().Get("Retry-After"))
			require.Contains(t, w.Body.String(), "#held")
			if w.Header().Get("Idempotent-Replayed") == "not-kept" {
				refused++
			}
		}
		require.Equal(t, crowd, refused)
		e.require(t, 0)
		n.Store(0) // the keys of the outer guard begin again
		require.NoError(t, lease.Release(t.Context()))
		for range 1 + crowd {
			require.Equal(t, 201, serve(h, keyed("k")).Code, "the outer guard has kept no refusal")
		}
		e.require(t, 1)
	})
}

// slowWriter is a client that is not ready when its answer is.
type slowWriter struct {
	*httptest.ResponseRecorder
	ready <-chan struct{}
}

func (w *slowWriter) WriteHeader(status int) {
	<-w.ready
	w.ResponseRecorder.WriteHeader(status)
}

// A failed answer that waiters send too is a copy: its buffer belongs to other answers as soon as
// the first one is sent.
func TestASharedFailureIsNotOverwritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, memstore.New(), lock.WithWait(time.Minute))
		h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "failure of "+r.Header.Get("Idempotency-Key"))
		}))
		go serve(h, keyed("k"))
		synctest.Wait()
		ready := make(chan struct{})
		waited := &slowWriter{httptest.NewRecorder(), ready}
		served := make(chan struct{})
		go func() {
			defer close(served)
			h.ServeHTTP(waited, keyed("k"))
		}()
		time.Sleep(2 * time.Second)
		storm(64, func(i int) *httptest.ResponseRecorder { return serve(h, keyed(strconv.Itoa(i%10))) })
		for i := range 10 {
			serve(h, keyed(strconv.Itoa(i)))
		}
		close(ready)
		<-served
		require.Equal(t, "failure of k", waited.Body.String())
	})
}
