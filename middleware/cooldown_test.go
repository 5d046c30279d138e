package middleware_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/quorum"
	latch "github.com/httplatch/httplatch/middleware"
)

func TestCooldown(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		handler http.HandlerFunc
		cools   bool
	}{
		{"nothing written", func(http.ResponseWriter, *http.Request) {}, true},
		{"only a body", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }, true},
		{"201", created, true},
		{"303", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(303) }, true},
		{"399", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(399) }, true},
		{"400", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, false},
		{"500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, false},
		{"103, then 500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(500) }, false},
		{"103, then a body", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); _, _ = w.Write(nil) }, true},
		{"201, then a superfluous 500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(500) }, true},
		{"500, then a superfluous 201", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); w.WriteHeader(201) }, false},
		{"copied body, then a superfluous 500", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader("ok"))
			w.WriteHeader(500)
		}, true},
		{"flushed, then a superfluous 500", func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			w.WriteHeader(500)
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLocker(t, memstore.New())
				guard := latch.Lock(l, "user", byUser, latch.WithCooldown(3*time.Second))
				serve(guard(tt.handler), post("42"))
				next := guard(http.HandlerFunc(created))
				if !tt.cools {
					require.Equal(t, http.StatusCreated, serve(next, post("42")).Code, "the key is free at once")
					return
				}
				time.Sleep(500 * time.Millisecond)
				requireProblem(t, wantProblem{status: 429, kind: "cooling-down", retryAfter: "3"}, serve(next, post("42")))
				require.Equal(t, http.StatusCreated, serve(next, post("43")).Code, "another key is not concerned")
				time.Sleep(2501 * time.Millisecond)
				require.Equal(t, http.StatusCreated, serve(next, post("42")).Code)
			})
		})
	}
}

// TestCooldownOverAQuorum: a quorum keeps cool-downs, though no receipts.
func TestCooldownOverAQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := []lock.Store{memstore.New(), memstore.New(), memstore.New()}
		guard := latch.Lock(newLocker(t, quorum.New(nodes)), "user", byUser, latch.WithCooldown(3*time.Second))
		require.Equal(t, http.StatusCreated, serve(guard(http.HandlerFunc(created)), post("42")).Code)
		requireProblem(t, wantProblem{status: 429, kind: "cooling-down", retryAfter: "3"}, serve(guard(mustNotRun(t)), post("42")))
		time.Sleep(3 * time.Second)
		require.Equal(t, http.StatusCreated, serve(guard(http.HandlerFunc(created)), post("42")).Code)
		time.Sleep(4 * time.Second)
	})
}

// TestCooldownSurvivesRequest: a client that left still has its cool-down.
func TestCooldownSurvivesRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, &stubStore{Store: memstore.New()})
		guard := latch.Lock(l, "user", byUser, latch.WithCooldown(3*time.Second))
		ctx, cancel := newCancel(t)
		serve(guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			cancel()
			w.WriteHeader(http.StatusCreated)
		})), post("42").WithContext(ctx))
		require.Equal(t, http.StatusTooManyRequests, serve(guard(mustNotRun(t)), post("42")).Code)
	})
}

func TestWriterIsUntouchedWithoutCooldown(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	w := httptest.NewRecorder()
	latch.Lock(l, "user", byUser)(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
		require.Same(t, w, got)
	})).ServeHTTP(w, post("42"))
}

// TestCooldownWriterOnServer uses the features of net/http through the writer.
func TestCooldownWriterOnServer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		handler func(w http.ResponseWriter, r *http.Request) error
		want    string
	}{
		{"flush by controller", func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = io.WriteString(w, "a")
			return http.NewResponseController(w).Flush()
		}, "a"},
		{"flush by assertion", func(w http.ResponseWriter, _ *http.Request) error {
			f, ok := w.(http.Flusher)
			if !ok {
				return errors.New("no http.Flusher")
			}
			f.Flush()
			return nil
		}, ""},
		{"deadlines", func(w http.ResponseWriter, _ *http.Request) error {
			rc := http.NewResponseController(w)
			return errors.Join(rc.SetReadDeadline(time.Now().Add(time.Hour)), rc.SetWriteDeadline(time.Now().Add(time.Hour)))
		}, ""},
		{"full duplex", func(w http.ResponseWriter, _ *http.Request) error {
			return http.NewResponseController(w).EnableFullDuplex()
		}, ""},
		{"hijack", func(w http.ResponseWriter, _ *http.Request) error {
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return err
			}
			return answerByHand(conn, buf)
		}, "by hand"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLocker(t, memstore.New())
			failure := make(chan error, 1)
			server := startServer(t, latch.Lock(l, "user", byUser, latch.WithCooldown(time.Hour))(
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { failure <- tt.handler(w, r) })))
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
			require.NoError(t, err)
			r.Header.Set("X-User-ID", "42")
			resp, err := server.Client().Do(r)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.NoError(t, <-failure)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, tt.want, string(body))
		})
	}
}

func answerByHand(conn net.Conn, buf *bufio.ReadWriter) error {
	_, err := buf.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nby hand")
	return errors.Join(err, buf.Flush(), conn.Close())
}

// TestCooldownStatusKeepsTheTime for error handlers that want to show it.
func TestCooldownStatusKeepsTheTime(t *testing.T) {
	t.Parallel()
	var left time.Duration
	h := latch.Lock(newLocker(t, memstore.New()), "user", byUser, latch.WithCooldown(time.Hour), latch.WithCooldownStatus(409),
		latch.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
			var refused *lock.RefusedError
			require.ErrorAs(t, p.Err, &refused)
			left = refused.Entry.Left
			p.ServeHTTP(w, r)
		}))(http.HandlerFunc(created))
	serve(h, post("42"))
	require.Equal(t, 409, serve(h, post("42")).Code)
	require.InDelta(t, time.Hour, left, float64(time.Minute))
}
