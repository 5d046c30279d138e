package middleware_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
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

// startServerOf starts one that speaks HTTP/2 if wanted.
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
	// has returned, which would hide whatever is done too late.
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
	for name, opts := range map[string][]latch.LockOption{
		"plain":     nil,
		"cool-down": {latch.WithCooldown(time.Hour)},
		"fail open": {latch.WithFailOpen()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLocker(t, memstore.New())
			value := errors.New("boom")
			h := latch.Lock(l, "user", byUser, opts...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				panicsFarDown(value)
			}))
			func() {
				defer func() {
					require.Same(t, value, recover())
					require.Contains(t, string(debug.Stack()), "panicsFarDown", "the stack is the handler's")
				}()
				serve(h, post("42"))
			}()
			requireFree(t, l, lock.Key("user", "42"))
		})
	}
}

func panicsFarDown(value error) { panic(value) }

func TestGoexitReleases(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	h := latch.Lock(l, "user", byUser, latch.WithCooldown(time.Hour))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		runtime.Goexit()
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve(h, post("42"))
	}()
	<-done
	requireFree(t, l, lock.Key("user", "42"))
}

// TestAbortedHandlersReleaseOnServer is the same over a real server, where the
// client learns of it as a broken connection, and may come back at once.
func TestAbortedHandlersReleaseOnServer(t *testing.T) {
	t.Parallel()
	for name, abort := range map[string]func(){
		"panic":           func() { panic("boom") },
		"ErrAbortHandler": func() { panic(http.ErrAbortHandler) },
		"Goexit":          runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLocker(t, memstore.New())
			fail := true
			server := startServer(t, latch.Lock(l, "user", byUser)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if fail {
					fail = false
					abort()
				}
				w.WriteHeader(http.StatusCreated)
			})))
			require.Zero(t, send(t.Context(), server))
			require.Equal(t, http.StatusCreated, send(t.Context(), server))
		})
	}
}

func TestClientGoneReleases(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	arrived := make(chan struct{})
	left := make(chan struct{})
	server := startServer(t, latch.Lock(l, "user", byUser)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(left)
	})))

	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan int)
	go func() { answered <- send(ctx, server) }()
	<-arrived
	cancel()
	require.Zero(t, <-answered)
	<-left
	require.Eventually(t, func() bool {
		return l.Do(t.Context(), lock.Key("user", "42"), func(context.Context) error { return nil }) == nil
	}, 10*time.Second, time.Millisecond)
}

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
// release that is not over by then shows as a 409.
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
