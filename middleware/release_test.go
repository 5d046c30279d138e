package middleware_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// startServer serves h over TCP, with the panics of its handlers unlogged.
func startServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	return startServerOf(t, h, false)
}

// startServerOf starts a server, with HTTP/2 if wanted.
func startServerOf(t *testing.T, h http.Handler, http2 bool) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if http2 {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	// On one connection a request is not read before the handler of the last one
	// has returned, which would hide a late release.
	transport, ok := server.Client().Transport.(*http.Transport)
	require.True(t, ok)
	transport.DisableKeepAlives = true
	t.Cleanup(func() {
		server.Client().CloseIdleConnections()
		server.Close()
	})
	return server
}

// send posts as user 42 and returns the status, 0 if the connection ended
// without an answer.
func send(ctx context.Context, server *httptest.Server) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
	if err != nil {
		return 0
	}
	r.Header.Set("X-User-ID", "42")
	resp, err := server.Client().Do(r)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

func TestPanicIsUnchanged(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	for name, guard := range map[string]func(http.Handler) http.Handler{
		"lock":            latch.Lock(l, "plain", byUser),
		"lock, cool-down": latch.Lock(l, "cool-down", byUser, latch.WithCooldown(time.Hour)),
		"lock, fail open": latch.Lock(l, "fail open", byUser, latch.WithFailOpen()),
		"idempotent":      once(l),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			value := errors.New("boom")
			h := guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panicsFarDown(value) }))
			for range 2 { // the second runs, since the first has freed the key
				func() {
					defer func() {
						require.Same(t, value, recover())
						require.Contains(t, string(debug.Stack()), "panicsFarDown", "the stack is the handler's")
					}()
					serve(h, keyed("k"))
				}()
			}
		})
	}
}

func panicsFarDown(value error) { panic(value) }

func TestClientGoneBeforeTheClaim(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]latch.LockOption{"plain": nil, "fail open": {latch.WithFailOpen()}} {
		l := newLocker(t, &stubStore{Store: memstore.New()})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := serve(latch.Lock(l, "user", byUser, opts...)(mustNotRun(t)), post("42").WithContext(ctx))
		require.Equal(t, http.StatusServiceUnavailable, w.Code, name)
	}
}

// TestReleasedBeforeAnswer submits again as soon as an answer was read. A
// release that is not over at that time shows as a 409.
func TestReleasedBeforeAnswer(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	answer := strings.Repeat("x", 1000)
	server := startServer(t, latch.Lock(l, "user", byUser)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, answer)
	})))
	for i := range 1000 {
		require.Equal(t, http.StatusCreated, send(t.Context(), server), "submission %d", i)
	}
}

// TestReleasedTooLateIsSeen is the twin of TestReleasedBeforeAnswer: the same
// check notices a guard that releases after the answer was sent.
func TestReleasedTooLateIsSeen(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	again := make(chan struct{})
	server := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := l.Acquire(r.Context(), lock.Key("user", "42"))
		if err != nil {
			w.WriteHeader(http.StatusConflict)
			return
		}
		defer func() { _ = lease.Release(r.Context()) }()
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusCreated)
		require.NoError(t, http.NewResponseController(w).Flush())
		<-again
	}))
	require.Equal(t, http.StatusCreated, send(t.Context(), server))
	require.Equal(t, http.StatusConflict, send(t.Context(), server))
	close(again)
}
