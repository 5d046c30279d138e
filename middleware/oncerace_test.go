package middleware_test

import (
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
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
