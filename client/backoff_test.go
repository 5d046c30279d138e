package client_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
)

func after(value string) *http.Response {
	return &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {value}}}
}

func TestRetryAfter(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) { // on 2000-01-01, 00:00 UTC
		const longest = time.Duration(math.MaxInt64/int64(time.Second)) * time.Second
		for value, want := range map[string]time.Duration{
			"0":                                0,
			" 7\t":                             7 * time.Second,
			"9223372036":                       longest,
			"9223372037":                       longest,
			"99999999999999999999999999999999": longest,
			"Sat, 01 Jan 2000 00:01:30 GMT":    90 * time.Second,
			"Saturday, 01-Jan-00 00:01:30 GMT": 90 * time.Second,
			"Sat Jan  1 00:01:30 2000":         90 * time.Second,
			"Fri, 31 Dec 1999 23:59:59 GMT":    0,
			"":                                 0,
			"-1":                               0,
			"1.5":                              0,
			"１":                                0,
		} {
			require.Equal(t, want, client.Backoff(0, 0, 0, after(value)), "%q", value)
		}
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	const long = time.Duration(math.MaxInt64)
	for _, tt := range []struct {
		shortest, longest time.Duration
		attempt           int
		low, high         time.Duration
	}{
		{time.Second, 30 * time.Second, 0, time.Second / 2, time.Second},
		{time.Second, 30 * time.Second, 1, time.Second, 2 * time.Second},
		{time.Second, 30 * time.Second, 4, 8 * time.Second, 16 * time.Second},
		{time.Second, 30 * time.Second, 5, 15 * time.Second, 30 * time.Second},
		{time.Second, 30 * time.Second, 1 << 40, 15 * time.Second, 30 * time.Second},
		{time.Second, 30 * time.Second, -1, time.Second / 2, time.Second},
		{time.Second, time.Millisecond, 3, time.Millisecond / 2, time.Millisecond},
		{1, long, 100, long / 2, long},
		{1, 1, 0, 1, 1},
		{0, time.Second, 3, 0, 0},
		{-5, -1, 3, 0, 0},
		{5, -1, 3, 0, 0},
	} {
		for range 20 {
			got := client.Backoff(tt.shortest, tt.longest, tt.attempt, nil)
			require.GreaterOrEqual(t, got, tt.low, "%+v", tt)
			require.LessOrEqual(t, got, tt.high, "%+v", tt)
		}
	}
	require.Equal(t, long, client.Backoff(long, long, 0, after("9223372036")).Round(0), "it does not overflow")
}

// TestPausesDiffer: clients that failed together do not come back together.
func TestPausesDiffer(t *testing.T) {
	t.Parallel()
	low, high := time.Hour, time.Duration(0)
	for range 200 {
		pause := client.Backoff(time.Hour, time.Hour, 0, nil)
		low, high = min(low, pause), max(high, pause)
	}
	require.Less(t, low, 35*time.Minute)
	require.Greater(t, high, 55*time.Minute)
}

// outage sends n requests in a row to a server that refuses all of them, and returns how many it got.
func outage(t *testing.T, rt http.RoundTripper, b *base, n int) int {
	t.Helper()
	before := len(b.sent)
	for range n {
		require.Equal(t, 503, must.Get(rt.RoundTrip(request(t.Context(), t, http.MethodPost, "")))(t).StatusCode)
	}
	return len(b.sent) - before
}

// A server that is down gets a fifth more than the requests that there are, and not four times as many.
func TestOutageIsNotDoubled(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
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
	parallel.Bubble(t, func(t *testing.T) {
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
	require.Equal(t, "busy", bodyOf(t, must.Get(rt.RoundTrip(request(t.Context(), t, http.MethodPost, "")))(t)))
	require.Contains(t, reason, "budget")
}
