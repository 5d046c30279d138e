package client_test

import (
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
)

func after(value string) *http.Response {
	return &http.Response{Header: http.Header{"Retry-After": {value}}}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // on 2000-01-01, 00:00 UTC
		const longest = time.Duration(math.MaxInt64/int64(time.Second)) * time.Second
		for value, want := range map[string]time.Duration{
			"0":                                0,
			"7":                                7 * time.Second,
			" 7\t":                             7 * time.Second,
			"007":                              7 * time.Second,
			"1000000000":                       1e9 * time.Second,
			"9223372036":                       longest,
			"9223372037":                       longest,
			"99999999999999999999999999999999": longest,
			"Sat, 01 Jan 2000 00:01:30 GMT":    90 * time.Second,
			"Saturday, 01-Jan-00 00:01:30 GMT": 90 * time.Second,
			"Sat Jan  1 00:01:30 2000":         90 * time.Second,
			"Fri, 31 Dec 1999 23:59:59 GMT":    0,
			"":                                 0,
			"-1":                               0,
			"+1":                               0,
			"1.5":                              0,
			"1e9":                              0,
			"soon":                             0,
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

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "120", "1000000000", "99999999999999999999", "Sat, 01 Jan 2000 00:01:30 GMT", "-1", " 5 ", "1.5"} {
		f.Add(seed, int64(time.Second), int64(time.Minute), 3)
	}
	f.Fuzz(func(t *testing.T, value string, shortest, longest int64, attempt int) {
		got := client.Backoff(time.Duration(shortest), time.Duration(longest), attempt, after(value))
		if got < 0 {
			t.Fatalf("a pause of %v", got)
		}
		without := client.Backoff(0, 0, 0, after(value))
		if without > got {
			t.Fatalf("%v is shorter than the %v of Retry-After", got, without)
		}
	})
}
