package middleware_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/event"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// stallingReader signals that its reader waits for more than the first byte.
type stallingReader struct {
	io.ReadCloser
	reads  int
	waited func()
}

func (s *stallingReader) Read(p []byte) (int, error) {
	if s.reads++; s.reads > 1 {
		s.waited()
	}
	return s.ReadCloser.Read(p)
}

// stall sends one byte of a body of user 42, and returns once the server waits
// for the rest. finish sends that, and returns the status.
func stall(t *testing.T, h http.Handler) (finish func() int) {
	t.Helper()
	waiting := make(chan struct{})
	server := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = &stallingReader{ReadCloser: r.Body, waited: sync.OnceFunc(func() { close(waiting) })}
		h.ServeHTTP(w, r)
	}))
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nX-User-ID: 42\r\nContent-Length: 3\r\nConnection: close\r\n\r\nt")
	require.NoError(t, err)
	<-waiting
	return func() int {
		_, err := io.WriteString(conn, "ea")
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
}

// TestSlowBodyHoldsNoLock: an outsider that sends one byte does not keep the
// owner of the key out. Its twin without WithBodyFirst is why there is one.
func TestSlowBodyHoldsNoLock(t *testing.T) {
	t.Parallel()
	for storeName, open := range bothStores {
		for name, tt := range map[string]struct {
			opts  []latch.LockOption
			owner int
		}{
			"body first":       {[]latch.LockOption{latch.WithBodyFirst(10)}, 201},
			"twin, without it": {nil, 409},
			"failing open":     {[]latch.LockOption{latch.WithBodyFirst(10), latch.WithFailOpen()}, 201},
		} {
			t.Run(storeName+" "+name, func(t *testing.T) {
				t.Parallel()
				h := latch.Lock(newLocker(t, open(t), patient), "user", byUser, tt.opts...)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err != nil || string(body) != "tea" {
						w.WriteHeader(http.StatusTeapot)
						return
					}
					w.WriteHeader(http.StatusCreated)
				}))
				finish := stall(t, h)
				owner := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("tea"))
				owner.Header.Set("X-User-ID", "42")
				require.Equal(t, tt.owner, serve(h, owner).Code)
				require.Equal(t, 201, finish(), "the handler gets the whole body")
			})
		}
	}
}

func TestBodyFirstRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		body  io.Reader
		known bool
		user  string
		want  wantProblem
	}{
		{"at the limit", strings.NewReader("tea"), true, "42", wantProblem{status: 201}},
		{"none", nil, true, "42", wantProblem{status: 201}},
		{"above it", strings.NewReader("teas"), true, "42", wantProblem{status: 413, kind: "body-too-large"}},
		{"above it, length unknown", strings.NewReader("teas"), false, "42", wantProblem{status: 413, kind: "body-too-large"}},
		{"broken off", io.MultiReader(strings.NewReader("t"), iotest.ErrReader(io.ErrUnexpectedEOF)), false, "42", wantProblem{status: 400, kind: "body-unreadable"}},
		{"no key", iotest.ErrReader(io.ErrUnexpectedEOF), false, "", wantProblem{status: 400, kind: "key-missing"}},
	}
	for _, tt := range tests {
		var kinds []string
		l := newLocker(t, memstore.New(), lock.WithObserver(func(_ context.Context, e lock.Event) {
			kinds = append(kinds, string(e.Kind))
		}))
		r := httptest.NewRequest(http.MethodPost, "/orders", tt.body)
		if !tt.known {
			r.ContentLength = -1
		}
		r.Header.Set("X-User-ID", tt.user)
		w := serve(latch.Lock(l, "user", byUser, latch.WithBodyFirst(3))(http.HandlerFunc(created)), r)
		if tt.want.status == 201 {
			require.Equal(t, 201, w.Code, tt.name)
			continue
		}
		requireProblem(t, tt.want, w)
		require.Equal(t, []string{string(event.Rejected)}, kinds, "%s: nothing was claimed", tt.name)
	}
}

// TestBodyFirstOfABodyReadOutside: it is no slow body, and the key does not need it.
func TestBodyFirstOfABodyReadOutside(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(*http.Request) error{"read": consume, "read and closed": consumeAndClose} {
		h := outside(t, read, latch.Lock(newLocker(t, memstore.New()), "user", byUser, latch.WithBodyFirst(100)), created)
		require.Equal(t, 201, serve(h, keyed("")).Code, name)
	}
}

// TestBodyFirstLimitsKeyFunctions that read the body before the guard does.
func TestBodyFirstLimitsKeyFunctions(t *testing.T) {
	t.Parallel()
	key := func(r *http.Request) (string, error) {
		body, err := bodybuf.Bytes(r, 1<<20)
		return fmt.Sprint(len(body), err), nil
	}
	l := newLocker(t, memstore.New())
	h := latch.Lock(l, "size", key, latch.WithBodyFirst(3))(mustNotRun(t))
	requireProblem(t, wantProblem{status: 413, kind: "body-too-large"}, serve(h, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("teas"))))
}
