package middleware_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// WithInProgressStatus sets the status of this refusal, and of no other.
func TestInProgressStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []int{409, 503} {
		l := newLocker(t, memstore.New(), lock.WithWait(0))
		guard := once(l, latch.WithInProgressStatus(status))
		h := guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requireProblem(t, wantProblem{status: status, kind: "in-progress", retryAfter: "1"}, serve(guard(mustNotRun(t)), keyed("k")))
			requireProblem(t, wantProblem{status: 422, kind: "key-reused"}, serve(guard(mustNotRun(t)), keyedBody("k", "other")))
			_, _ = w.Write(make([]byte, 2<<20)) // too large to be kept
		}))
		require.Equal(t, 200, serve(h, keyed("k")).Code)
		requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, serve(guard(mustNotRun(t)), keyed("k")))
	}
	for _, status := range []int{0, 200, 423, 425, 429, 500} {
		require.Panics(t, func() { latch.WithInProgressStatus(status) }, status)
	}
}
