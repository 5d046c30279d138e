package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// redisStore is on a real server that all tests share, under its own keys.
func redisStore(t *testing.T) lock.Store {
	t.Helper()
	return openRedis(t, redistest.Shared(t).URL())
}

// storm calls f n times at once.
func storm(n int, f func(i int) *httptest.ResponseRecorder) []*httptest.ResponseRecorder {
	answers := make([]*httptest.ResponseRecorder, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			answers[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return answers
}

// TestWaiterLeavesWithItsClient, without an effect.
func TestWaiterLeavesWithItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(memstore.New(), lock.WithWait(time.Hour))
		t.Cleanup(func() { end(l) })
		h := once(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Minute) }))
		done := make(chan struct{})
		go func() {
			serve(h, keyed("k"))
			close(done)
		}()
		synctest.Wait()
		ctx, leave := newCancel(t)
		began := time.Now()
		time.AfterFunc(time.Second, leave)
		serve(once(l)(mustNotRun(t)), keyed("k").WithContext(ctx))
		require.Equal(t, time.Second, time.Since(began))
		<-done
	})
}
