package client_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
)

// outage sends n requests in a row to a server that refuses all of them, and returns how
// many it got.
func outage(t *testing.T, rt http.RoundTripper, b *base, n int) int {
	t.Helper()
	before := len(b.sent)
	for range n {
		resp, err := rt.RoundTrip(request(t.Context(), t, http.MethodPost, ""))
		require.NoError(t, err)
		require.Equal(t, 503, resp.StatusCode)
	}
	return len(b.sent) - before
}

// TestOutageIsNotDoubled: a server that is down gets a fifth more than the requests that
// there are, and not four times as many.
func TestOutageIsNotDoubled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := always(answer(503, ""))
		rt := client.Transport(b, client.WithBackoff(1, 1))
		require.InDelta(t, 1000+10+200, outage(t, rt, b, 1000), 2)

		// The twin: as good as no budget.
		b = always(answer(503, ""))
		rt = client.Transport(b, client.WithBackoff(1, 1), client.WithBudget(3, 1000))
		require.Equal(t, 4000, outage(t, rt, b, 1000))
	})
}

func TestBudgetOfASeldomClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := always(answer(503, ""))
		rt := client.Transport(b, client.WithBackoff(1, 1), client.WithBudget(0, 2))
		require.Equal(t, 1+2, outage(t, rt, b, 1))
		require.Equal(t, 1, outage(t, rt, b, 1))
		time.Sleep(10 * time.Second)
		require.Equal(t, 1+1, outage(t, rt, b, 1))
		time.Sleep(time.Hour)
		require.Equal(t, 1+2, outage(t, rt, b, 1), "no more than the burst")
	})
}

func TestBudgetIsReported(t *testing.T) {
	t.Parallel()
	var reason string
	b := always(answer(503, "busy"))
	rt := client.Transport(b, client.WithBudget(0, 0), client.WithHook(func(a client.Attempt) { reason = a.Reason }))
	resp, err := rt.RoundTrip(request(t.Context(), t, http.MethodPost, ""))
	require.NoError(t, err)
	require.Equal(t, "busy", bodyOf(t, resp))
	require.Contains(t, reason, "budget")
}
