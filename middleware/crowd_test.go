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
