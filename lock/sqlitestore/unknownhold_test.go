package sqlitestore_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// lostCall is a connection over which a request leaves, and no answer comes back.
type lostCall struct{}

func (lostCall) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("reset") }

// TestUnknownHold: after a call whose answer was lost, the key of a lock stays taken in the
// file, also for another process, and is free when the time is over. Without the option it is
// free at once.
func TestUnknownHold(t *testing.T) {
	t.Parallel()
	calling := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://orders.example/", http.NoBody)
		require.NoError(t, err)
		res, err := latch.Upstream(lostCall{}).RoundTrip(call)
		if err == nil {
			_ = res.Body.Close()
		}
		w.WriteHeader(http.StatusBadGateway)
	})
	path := file(t)
	ask := func(name string, next http.HandlerFunc, opts ...latch.LockOption) *httptest.ResponseRecorder {
		l := lock.New(open(t, path), lock.WithLogger(sqlshop.Quiet), lock.WithBudget(5*time.Second), lock.WithLease(10*time.Second))
		t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
		w := httptest.NewRecorder()
		latch.Lock(l, name, keyfunc.Global, opts...)(next).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
		return w
	}
	done := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

	require.Equal(t, 502, ask("long", calling, latch.WithUnknownHold(time.Hour)).Code)
	held := ask("long", done)
	require.Equal(t, 409, held.Code)
	require.Contains(t, held.Body.String(), "#held")
	left, err := strconv.Atoi(held.Header().Get("Retry-After"))
	require.NoError(t, err)
	require.InDelta(t, 3600-60, left, 60)

	require.Equal(t, 502, ask("short", calling, latch.WithUnknownHold(50*time.Millisecond)).Code)
	require.Eventually(t, func() bool { return ask("short", done).Code == 201 }, 20*time.Second, 10*time.Millisecond)

	require.Equal(t, 502, ask("without", calling).Code)
	require.Equal(t, 201, ask("without", done).Code)
}
