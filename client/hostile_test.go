package client_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
)

func TestEndless503(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			header string
			n      int
		}{{"X: y", 4}, {"Retry-After: 0", 4}, {"Retry-After: 1", 4}, {"Retry-After: 25", 3}, {"Retry-After: 61", 1}} {
			start := time.Now()
			b := always(answer(503, "busy", tt.header))
			resp, err := client.Transport(b).RoundTrip(request(t.Context(), t, http.MethodPost, "tea"))
			require.NoError(t, err)
			require.Equal(t, 503, resp.StatusCode)
			require.Equal(t, "busy", bodyOf(t, resp))
			require.Len(t, b.sent, tt.n, tt.header)
			require.Less(t, time.Since(start), time.Minute)
		}
	})
}

func TestHugeRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, value := range []string{"1000000000", "99999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
			for _, first := range []func() *http.Response{
				answer(503, "later", "Retry-After: "+value),
				answer(429, "later", "Retry-After: "+value),
				answer(409, "later", "Retry-After: "+value, "Stripe-Should-Retry: true"),
				problem(409, "in-progress", "Retry-After: "+value),
			} {
				start := time.Now()
				n, resp := send(t, http.MethodPost, first, client.WithMaxWait(1000*time.Hour))
				require.Equal(t, 1, n)
				require.Zero(t, time.Since(start), "the refusal comes at once")
				require.NotEmpty(t, bodyOf(t, resp))
			}
		}
	})
}

// trickle is a body of blanks that never ends, one each time.
type trickle struct {
	every  time.Duration
	closed atomic.Bool
}

func (b *trickle) Read(p []byte) (int, error) {
	if b.every > 0 {
		time.Sleep(b.every)
	}
	if b.closed.Load() {
		return 0, io.ErrClosedPipe
	}
	p[0] = ' '
	return 1, nil
}

func (b *trickle) Close() error { b.closed.Store(true); return nil }

// TestBodyThatNeverEnds: the body of a refusal is read for some seconds at most, and a body that is
// not used is closed soon.
func TestBodyThatNeverEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, every := range []time.Duration{0, time.Millisecond, time.Second, time.Hour} {
			for _, contentType := range []string{"application/problem+json", "text/html"} {
				for status, want := range map[int]int{409: 1, 503: 2, 201: 1} {
					body := &trickle{every: every}
					start := time.Now()
					_, resp := send(t, http.MethodPost, func() *http.Response {
						resp := answer(status, "", "Content-Type: "+contentType)()
						resp.ContentLength, resp.Body = -1, body
						return resp
					}, client.WithBackoff(1, 1), client.WithMaxWait(10*time.Hour))
					took := time.Since(start)
					if every == time.Hour {
						took -= time.Hour // this body does not notice that it is closed
					}
					require.LessOrEqual(t, took, 8*time.Second, "%d %s %v", status, contentType, every)
					if every > 0 && contentType != "text/html" && status == 409 {
						want = 2 // it broke off, and may have been any refusal
					}
					require.Equal(t, want, client.Attempts(resp), "%d %s %v", status, contentType, every)
					_ = resp.Body.Close()
				}
			}
		}
	})
}
