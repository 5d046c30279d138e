package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
)

// The signatures of go-retryablehttp, which docs/snippets tests with the real one.
var (
	_ func(context.Context, *http.Response, error) (bool, error)                    = client.CheckRetry
	_ func(low, high time.Duration, attempt int, resp *http.Response) time.Duration = client.Backoff
)

// TestCheckRetryDecidesAsTransport, for all problems and statuses.
func TestCheckRetryDecidesAsTransport(t *testing.T) {
	t.Parallel()
	check := func(method string, key bool, resp *http.Response) bool {
		resp.Request = request(t.Context(), t, method, "")
		if key {
			resp.Request.Header.Set("Idempotency-Key", "k")
		}
		again, err := client.CheckRetry(t.Context(), resp, nil)
		require.NoError(t, err)
		return again
	}
	for _, tt := range kinds(t) {
		resp := problem(tt.status, tt.kind)()
		require.Equal(t, tt.again, check(http.MethodPost, true, resp), "%d %s", tt.status, tt.kind)
		require.Contains(t, bodyOf(t, resp), tt.kind, "the body is put back")
		require.False(t, check(http.MethodPost, false, problem(tt.status, tt.kind)()), "without a key")
	}
	for status := 200; status < 600; status++ {
		require.Equal(t, retriedStatuses[status], check(http.MethodPost, true, answer(status, "")()), "%d", status)
		require.Equal(t, retriedStatuses[status], check(http.MethodPut, false, answer(status, "")()), "%d", status)
		require.False(t, check(http.MethodPost, false, answer(status, "")()), "%d", status)
	}
	require.True(t, check(http.MethodPost, true, broken(409, `{"type":`, "Content-Type: application/problem+json")()))
}

func TestCheckRetryOfErrors(t *testing.T) {
	t.Parallel()
	keyed := client.WithKey(t.Context(), "k")
	tests := []struct {
		ctx   context.Context //nolint:containedctx // a row of a table
		op    string
		err   error
		again bool
	}{
		{keyed, "Post", io.EOF, true},
		{t.Context(), "Post", io.EOF, false},
		{client.WithKey(t.Context(), ""), "Post", io.EOF, false},
		{t.Context(), "Patch", io.EOF, false},
		{t.Context(), "Get", io.EOF, true},
		{t.Context(), "Delete", io.EOF, true},
		{t.Context(), "", io.EOF, false},
		{keyed, "Post", http.ErrSchemeMismatch, false},
	}
	for _, tt := range tests {
		err := tt.err
		if tt.op != "" {
			err = &url.Error{Op: tt.op, URL: "http://shop.example", Err: err}
		}
		again, checkErr := client.CheckRetry(tt.ctx, nil, err)
		require.NoError(t, checkErr)
		require.Equal(t, tt.again, again, fmt.Sprint(tt.op, " ", tt.err))
	}
	again, err := client.CheckRetry(keyed, nil, nil)
	require.NoError(t, err)
	require.False(t, again)
}

func TestCheckRetryAndTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy := func(after string) *http.Response {
			resp := answer(503, "", "Retry-After: "+after)()
			resp.Request = request(t.Context(), t, http.MethodPut, "")
			return resp
		}
		for after, want := range map[string]bool{"1": true, "60": true, "61": false, "1000000000": false} {
			again, err := client.CheckRetry(t.Context(), busy(after), nil)
			require.NoError(t, err)
			require.Equal(t, want, again, after)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for after, want := range map[string]bool{"9": true, "10": false} {
			again, err := client.CheckRetry(ctx, busy(after), nil)
			require.NoError(t, err)
			require.Equal(t, want, again, after)
		}
		ended, cancelCause := context.WithCancelCause(t.Context())
		why := errors.New("the user has gone")
		cancelCause(why)
		again, err := client.CheckRetry(ended, busy("1"), nil)
		require.Equal(t, why, err)
		require.False(t, again)
	})
}

// TestCheckRetryNeedsTheKeyOfTheCaller: a repeat of the caller's request would get another random
// key.
func TestCheckRetryNeedsTheKeyOfTheCaller(t *testing.T) {
	t.Parallel()
	check := func(ctx context.Context, header string) bool {
		req := request(ctx, t, http.MethodPost, "tea")
		if header != "" {
			req.Header.Set("Idempotency-Key", header)
		}
		resp, err := client.Transport(always(answer(503, "")), client.WithAttempts(1)).RoundTrip(req)
		require.NoError(t, err)
		again, err := client.CheckRetry(ctx, resp, nil)
		require.NoError(t, err)
		return again
	}
	require.False(t, check(t.Context(), ""))
	require.True(t, check(t.Context(), "k"))
	require.True(t, check(client.WithKey(t.Context(), "k"), ""))
	require.False(t, check(client.WithKey(t.Context(), ""), ""))
}

// TestCheckRetryAfterARedirect: a repeat begins with the first request again.
func TestCheckRetryAfterARedirect(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Redirect(w, r, "/order", http.StatusSeeOther)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	for key, want := range map[string]bool{"": false, "k": true} {
		ctx := client.WithKey(t.Context(), key)
		c := &http.Client{Transport: client.Transport(server.Client().Transport, client.WithAttempts(1))}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
		require.NoError(t, err)
		resp, err := c.Do(req)
		require.NoError(t, err)
		require.Equal(t, http.MethodGet, resp.Request.Method)
		again, err := client.CheckRetry(ctx, resp, nil)
		require.NoError(t, err)
		require.Equal(t, want, again)
		_ = bodyOf(t, resp)
	}
}
