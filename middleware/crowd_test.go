//nolint:bodyclose // what is recorded has nothing to close
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

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

const crowd = 60 // duplicates that wait for the first

// The refusal of an inner lock to the first goes to the requests that wait for it, and no outer guard keeps it.
func TestAWaitingCrowdGetsTheRefusalOfAnInnerLock(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
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
		for _, res := range latchtest.Storm(h, 1+crowd, func(int) *http.Request { return keyed("k") }) {
			require.Equal(t, 409, res.StatusCode)
			require.Equal(t, "1", res.Header.Get("Retry-After"))
			require.Equal(t, "held", res.Header.Get("Latch-Problem"))
			if res.Header.Get("Idempotent-Replayed") == "not-kept" {
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

// A failed answer that waiters send too is a copy: its buffer belongs to other answers as soon as the first one is sent.
func TestASharedFailureIsNotOverwritten(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		h := once(newLocker(t, memstore.New(), lock.WithWait(time.Minute)))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "failure of "+r.Header.Get("Idempotency-Key"))
		}))
		go serve(h, keyed("k"))
		synctest.Wait()
		ready := make(chan struct{})
		waited := httptest.NewRecorder()
		served := make(chan struct{})
		go func() {
			defer close(served)
			h.ServeHTTP(writerFunc{waited, func() { <-ready }}, keyed("k")) // the client is not ready when its answer is
		}()
		time.Sleep(2 * time.Second)
		latchtest.Storm(h, 64, func(i int) *http.Request { return keyed(strconv.Itoa(i % 10)) })
		for i := range 10 {
			serve(h, keyed(strconv.Itoa(i)))
		}
		close(ready)
		<-served
		require.Equal(t, "failure of k", waited.Body.String())
	})
}
