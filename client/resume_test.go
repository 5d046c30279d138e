package client_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// cutInBody sends a POST to a server, whose first answer is cut in its body, 4 bytes before
// its end, and returns the answer and the bytes that the caller could read of it.
func cutInBody(t *testing.T, h http.Handler) (resp *http.Response, body string, err error) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	p := cutproxy.Start(t, srv.URL)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	// A request without a key measures the answer; it is not guarded.
	req, err := http.NewRequestWithContext(client.WithKey(t.Context(), ""), http.MethodPost, p.URL(), nil)
	require.NoError(t, err)
	p.Count()
	measured, err := client.Transport(base).RoundTrip(req)
	require.NoError(t, err)
	_ = bodyOf(t, measured)
	_, length := p.Counted()

	base.CloseIdleConnections()
	p.Cut(cutproxy.Response, length-4)
	req, err = http.NewRequestWithContext(client.WithKey(t.Context(), "intent-1"), http.MethodPost, p.URL(), nil)
	require.NoError(t, err)
	resp, err = client.Transport(base, client.WithBackoff(time.Millisecond, time.Second)).RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 1, client.Attempts(resp), "the answer was returned when its header had come")
	got, err := io.ReadAll(resp.Body)
	require.False(t, p.Waiting(), "the answer was cut")
	return resp, string(got), err
}

// guardedByKey is h behind Idempotent; a request without a key passes.
func guardedByKey(t *testing.T, h http.HandlerFunc, opts ...latch.IdempotentOption) http.Handler {
	t.Helper()
	locker := lock.New(memstore.New())
	t.Cleanup(func() { require.NoError(t, locker.Close(t.Context())) })
	return latch.Idempotent(locker, keyfunc.Global, keyfunc.Optional(keyfunc.IdempotencyKey), opts...)(h)
}

// TestNoOrderAfterAFailure: the first run fails, the caller gets its status, and the
// answer breaks off. Another run would place the order, and the caller would not know.
func TestNoOrderAfterAFailure(t *testing.T) {
	t.Parallel()
	only2xx := latch.WithFinal(func(status int) bool { return status < 300 })
	for _, tt := range []struct {
		status  int
		opts    []latch.IdempotentOption
		headers []string
	}{
		{status: 500},
		{status: 501},
		{status: 401},
		{status: 403},
		{status: 409, headers: []string{"Retry-After", "0"}},
		{status: 422, opts: []latch.IdempotentOption{only2xx}},
	} {
		t.Run(fmt.Sprint(tt.status, tt.headers), func(t *testing.T) {
			t.Parallel()
			var runs, orders atomic.Int64
			resp, _, err := cutInBody(t, guardedByKey(t, func(w http.ResponseWriter, r *http.Request) {
				for i := 0; i < len(tt.headers); i += 2 {
					w.Header().Set(tt.headers[i], tt.headers[i+1])
				}
				if r.Header.Get("Idempotency-Key") != "" && runs.Add(1) > 1 {
					orders.Add(1)
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, `{"id":"order 1"}`)
					return
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, `{"error":"the payment service does not answer"}`)
			}, tt.opts...))
			require.Equal(t, tt.status, resp.StatusCode)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.Zero(t, orders.Load(), "orders that were placed after their caller got a %d", tt.status)
			require.EqualValues(t, 1, runs.Load())
		})
	}
}

// TestSuccessGoesOn is the twin: an answer that the server keeps is read to its end.
func TestSuccessGoesOn(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 201, 202, 303} {
		var runs atomic.Int64
		resp, body, err := cutInBody(t, guardedByKey(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Idempotency-Key") != "" {
				runs.Add(1)
			}
			w.Header().Set("Location", "/orders/1")
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"id":"order 1"}`)
		}))
		require.NoError(t, err)
		require.Equal(t, status, resp.StatusCode)
		require.Equal(t, `{"id":"order 1"}`, body)
		require.EqualValues(t, 1, runs.Load())
	}
}

// TestTwoAnswersAreNotMixed: a server that ignores the key runs each attempt. Where its
// answers can be distinguished, the caller gets no mixture of two.
func TestTwoAnswersAreNotMixed(t *testing.T) {
	t.Parallel()
	const body = `{"status":"placed","number":"%d"}`
	for name, header := range map[string]func(h http.Header, n int64){
		"Location":         func(h http.Header, n int64) { h.Set("Location", fmt.Sprint("/orders/", n)) },
		"ETag":             func(h http.Header, n int64) { h.Set("ETag", fmt.Sprintf("%q", fmt.Sprint(n))) },
		"Content-Encoding": func(h http.Header, n int64) { h.Set("Content-Encoding", fmt.Sprint("x-", n)) },
		"Content-Length":   func(http.Header, int64) {}, // 1000000000 makes it longer
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var orders atomic.Int64
			resp, got, err := cutInBody(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := int64(1)
				if r.Header.Get("Idempotency-Key") != "" {
					n = orders.Add(1)
				}
				header(w.Header(), n)
				if name == "Content-Length" && n > 1 {
					n += 1_000_000_000
				}
				w.WriteHeader(http.StatusCreated)
				_, _ = fmt.Fprintf(w, body, n)
			}))
			require.EqualValues(t, 2, orders.Load(), "this server ignores the key")
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s %v: %s", resp.Status, resp.Header, got)
		})
	}
}
