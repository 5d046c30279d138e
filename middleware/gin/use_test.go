package latchgin_test

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
	latchgin "github.com/httplatch/httplatch/middleware/gin"
)

// TestReplays: one effect, and the same answers as by gin without a guard.
func TestReplays(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		handler gin.HandlerFunc
		status  int
	}{
		"JSON": {func(c *gin.Context) {
			var order struct{ Sku string }
			_ = c.BindJSON(&order)
			c.Header("Location", "/orders/1")
			c.JSON(http.StatusCreated, gin.H{"sku": order.Sku, "written": c.Writer.Written()})
		}, 201},
		"Status":                    {func(c *gin.Context) { c.Status(http.StatusNoContent) }, 204},
		"Status, twice":             {func(c *gin.Context) { c.Status(http.StatusNoContent); c.Status(http.StatusAccepted) }, 202},
		"AbortWithStatus":           {func(c *gin.Context) { c.AbortWithStatus(http.StatusConflict) }, 409},
		"AbortWithStatusJSON":       {func(c *gin.Context) { c.AbortWithStatusJSON(http.StatusUnprocessableEntity, gin.H{"error": "sku"}) }, 422},
		"String":                    {func(c *gin.Context) { c.String(http.StatusConflict, "sold out") }, 409},
		"Redirect":                  {func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/orders/1") }, 303},
		"Data":                      {func(c *gin.Context) { c.Data(http.StatusOK, "image/png", []byte("\x89PNG")) }, 200},
		"Write":                     {func(c *gin.Context) { c.Header("Content-Type", "text/plain"); _, _ = c.Writer.Write([]byte("ok")) }, 200},
		"net/http":                  {gin.WrapF(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusGone) }), 410},
		"Status of an empty answer": {func(c *gin.Context) { c.Status(http.StatusOK) }, 200},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			wire := func(guard gin.HandlerFunc) (h http.Handler, outside *[]any) {
				seen := []any{}
				r := gin.New()
				r.Use(func(c *gin.Context) {
					c.Next()
					seen = append(seen, c.Writer.Status(), c.Writer.Size(), c.Writer.Written(), c.IsAborted())
				})
				r.POST("/orders", guard, func(c *gin.Context) { runs++; tt.handler(c) })
				return r, &seen
			}
			bare, want := wire(unguarded)
			first := send(bare, "/orders", "k")
			require.Equal(t, tt.status, first.Code)
			h, seen := wire(latchgin.Use(once()))
			require.Equal(t, first.Result(), send(h, "/orders", "k").Result(), "the answer is as without the guard")
			require.Equal(t, *want, *seen, "so is what middleware outside sees")
			again := send(h, "/orders", "k")
			requireReplayed(t, again)
			again.Header().Del("Idempotent-Replayed")
			require.Equal(t, first.Code, again.Code)
			require.Equal(t, first.Body.String(), again.Body.String())
			require.Equal(t, first.Header(), again.Header())
			require.Equal(t, 2, runs, "one without the guard, and one behind it")
		})
	}
}

// TestSilentHandlers: middleware outside may answer for them, with a success or a failure, so
// that the guard keeps neither.
func TestSilentHandlers(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, http.StatusCreated, http.StatusBadGateway} {
		var log bytes.Buffer
		locker := newLocker(lock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		runs := 0
		r := gin.New()
		r.Use(func(c *gin.Context) {
			if c.Next(); status != 0 && !c.Writer.Written() {
				c.String(status, "outside")
			}
		})
		r.POST("/orders", latchgin.Use(latch.Idempotent(locker, byUser, keyfunc.IdempotencyKey)),
			latchgin.Use(latch.Lock(newLocker(), "user", byUser)), func(*gin.Context) { runs++ })
		first := send(r, "/orders", "k")
		require.Equal(t, max(status, 200), first.Code)
		require.Equal(t, 1, strings.Count(log.String(), "a handler returned without an answer"))
		require.Contains(t, send(r, "/orders", "k").Body.String(), "result-not-replayable")
		require.Equal(t, 1, runs)
	}
}

// TestLocks: a refused request does not reach later handlers, and middleware outside sees that.
func TestLocks(t *testing.T) {
	t.Parallel()
	r := gin.New()
	runs, aborted := 0, false
	r.Use(func(c *gin.Context) { c.Next(); aborted = aborted || c.IsAborted() })
	r.POST("/orders", latchgin.Use(once()), latchgin.Use(latch.Lock(newLocker(), "user", byUser)), func(c *gin.Context) {
		if runs++; runs == 1 {
			require.Equal(t, http.StatusConflict, send(r, "/orders", "another").Code)
			require.True(t, aborted)
		}
		require.Equal(t, 1, lock.Attempt(c.Request.Context()))
		c.Status(http.StatusCreated)
	})
	require.Equal(t, http.StatusCreated, send(r, "/orders", "k").Code)
	require.Equal(t, http.StatusCreated, send(r, "/orders", "k").Code)
	require.Equal(t, 1, runs)
}

// TestRoute: key functions see path values and pattern, as in net/http.
func TestRoute(t *testing.T) {
	t.Parallel()
	var pattern string
	onePerOrder := latch.Lock(newLocker(), "order", keyfunc.PathValue("id"))
	r := gin.New()
	r.POST("/orders/:id/pay/*rest", latchgin.Use(func(next http.Handler) http.Handler {
		return onePerOrder(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { pattern = r.Pattern; next.ServeHTTP(w, r) }))
	}), func(c *gin.Context) {
		if c.Param("id") == "7" {
			require.Equal(t, http.StatusCreated, send(r, "/orders/8/pay/now", "").Code)
			require.Equal(t, http.StatusConflict, send(r, "/orders/7/pay/now", "").Code)
		}
		c.String(http.StatusCreated, c.Request.PathValue("rest"))
	})
	w := send(r, "/orders/7/pay/now", "")
	require.Equal(t, http.StatusCreated, w.Code)
	require.Equal(t, "/now", w.Body.String())
	require.Equal(t, "/orders/:id/pay/*rest", pattern)
}

// TestStreams: a flushed answer is replayed, and a taken connection does not run again.
func TestStreams(t *testing.T) {
	t.Parallel()
	runs := 0
	r := gin.New()
	r.POST("/flush", latchgin.Use(once()), func(c *gin.Context) {
		runs++
		_, _ = c.Writer.WriteString("a")
		c.Writer.Flush()
	})
	r.POST("/hijack", latchgin.Use(once()), func(c *gin.Context) {
		runs++
		conn, _, err := c.Writer.Hijack()
		require.NoError(t, err)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\na")
		_ = conn.Close()
	})
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	for path, again := range map[string]string{"/flush": "200 a", "/hijack": "409 "} {
		runs = 0
		for _, want := range []string{"200 a", again} {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader("{}"))
			require.NoError(t, err)
			q.Header.Set("X-User-ID", "42")
			q.Header.Set("Idempotency-Key", "k")
			res, err := server.Client().Do(q)
			require.NoError(t, err)
			body, err := io.ReadAll(bufio.NewReader(res.Body))
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.True(t, strings.HasPrefix(res.Status[:4]+string(body), want), "%s %s", res.Status, body)
		}
		require.Equal(t, 1, runs)
	}
}

func TestUsePanics(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "latchgin.Use: nil guard", func() { latchgin.Use(nil) })
}
