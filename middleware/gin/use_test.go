package latchgin_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
	latchgin "github.com/httplatch/httplatch/middleware/gin"
)

// TestReplays: one effect, and the same answers as by gin without a guard.
func TestReplays(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
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
		"Redirect":                  {func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/orders/1") }, 303},
		"Data":                      {func(c *gin.Context) { c.Data(http.StatusOK, "image/png", []byte("\x89PNG")) }, 200},
		"Write":                     {func(c *gin.Context) { c.Header("Content-Type", "text/plain"); _, _ = c.Writer.Write([]byte("ok")) }, 200},
		"net/http":                  {gin.WrapF(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusGone) }), 410},
		"an answer and an error":    {func(c *gin.Context) { c.String(http.StatusCreated, "ok"); _ = c.Error(errors.New("mail was not sent")) }, 201},
		"Status of an empty answer": {func(c *gin.Context) { c.Status(http.StatusOK) }, 200},
	} {
		parallel.Run(t, name, func(t *testing.T) {
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
			guardtest.RequireReplay(t, first, send(h, "/orders", "k"))
			require.Equal(t, 2, runs, "one without the guard, and one behind it")
		})
	}
}

// Middleware outside may answer for them, with a success or a failure, so that the guard keeps neither.
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

// post sends a request to a server. gone is its header X-Gone.
func post(t *testing.T, server *httptest.Server, gone string) *http.Response {
	t.Helper()
	q := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/orders", strings.NewReader("{}")))(t)
	q.Header.Set("X-User-ID", "42")
	q.Header.Set("Idempotency-Key", "k")
	q.Header.Set("X-Gone", gone)
	return must.Get(server.Client().Do(q))(t)
}

// TestTakenConnection: a handler that has taken the connection does not run again.
func TestTakenConnection(t *testing.T) {
	t.Parallel()
	runs := 0
	r := gin.New()
	r.POST("/orders", latchgin.Use(once()), func(c *gin.Context) {
		runs++
		conn, _, err := c.Writer.Hijack()
		require.NoError(t, err)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_ = conn.Close()
	})
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	for _, want := range []int{200, 409} {
		res := post(t, server, "")
		require.NoError(t, res.Body.Close())
		require.Equal(t, want, res.StatusCode)
	}
	require.Equal(t, 1, runs)
}

func TestUsePanics(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "latchgin.Use: nil guard", func() { latchgin.Use(nil) })
}

// TestStreamGoesOnWithoutItsClient: c.Stream ends when the client has left. Behind the guard, the rest of the
// stream is recorded, so that a repeat does not get a part as the whole.
func TestStreamGoesOnWithoutItsClient(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	r := gin.New()
	guard := latch.Idempotent(newLocker(lock.WithWait(time.Minute)), byUser, keyfunc.IdempotencyKey)
	r.POST("/orders", func(c *gin.Context) {
		if c.GetHeader("X-Gone") != "" {
			left := c.Request.Context().Done()
			go func() {
				<-left
				close(gone)
			}()
		}
		c.Next()
	}, latchgin.Use(guard), func(c *gin.Context) {
		n := 0
		c.Stream(func(io.Writer) bool {
			c.SSEvent("step", n)
			if n++; n == 2 {
				c.Writer.Flush()
				<-gone
			}
			return n < 5
		})
	})
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	res := post(t, server, "yes")
	must.Get(bufio.NewReader(res.Body).ReadString('\n'))(t)
	require.NoError(t, res.Body.Close()) // the client leaves

	res = post(t, server, "")
	body := must.Get(io.ReadAll(res.Body))(t)
	require.NoError(t, res.Body.Close())
	require.Equal(t, "true", res.Header.Get("Idempotent-Replayed"))
	var want strings.Builder
	for n := range 5 {
		_, _ = fmt.Fprintf(&want, "event:step\ndata:%d\n\n", n)
	}
	require.Equal(t, want.String(), string(body))
}

var errAway = errors.New("database is away")

// errorHandler is the middleware of gin's own documentation on errors.
func errorHandler() gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 {
			c.JSON(http.StatusInternalServerError, map[string]any{"success": false, "message": c.Errors.Last().Error()})
		}
	}
}

// failing are handlers that leave their answer to the error middleware.
var failing = map[string]gin.HandlerFunc{
	"c.Error":                     func(c *gin.Context) { _ = c.Error(errAway) },
	"c.Error and c.Status":        func(c *gin.Context) { _ = c.Error(errAway); c.Status(http.StatusUnprocessableEntity) },
	"c.Error and a header":        func(c *gin.Context) { c.Header("X-Tries", "1"); _ = c.Error(errAway) },
	"c.Error and c.Abort":         func(c *gin.Context) { _ = c.Error(errAway); c.Abort() },
	"c.AbortWithError":            func(c *gin.Context) { _ = c.AbortWithError(http.StatusBadGateway, errAway) },
	"c.AbortWithError, final":     func(c *gin.Context) { _ = c.AbortWithError(http.StatusUnprocessableEntity, errAway) },
	"c.AbortWithError of success": func(c *gin.Context) { _ = c.AbortWithError(http.StatusOK, errAway) },
}

// The answer to an error of the handler comes from middleware outside the guard, so the guard keeps none, frees the key,
// and leaves the answer to that middleware. The next request meets no cool-down. After a commit, it gets no success either.
func TestErrorsRunAgain(t *testing.T) {
	t.Parallel()
	for name, fails := range failing {
		parallel.Run(t, name, func(t *testing.T) {
			runs := 0
			wire := func(guard gin.HandlerFunc) http.Handler {
				r := gin.New()
				r.Use(errorHandler())
				r.POST("/orders", guard, func(c *gin.Context) {
					if runs++; runs == 1 {
						fails(c)
						return
					}
					c.JSON(http.StatusCreated, gin.H{"order": runs})
				})
				return r
			}
			want := send(wire(unguarded), "/orders", "k")
			runs = 0
			h := wire(latchgin.Use(once()))
			require.Equal(t, want.Result(), send(h, "/orders", "k").Result(), "the first client's answer is as without the guard")
			again := send(h, "/orders", "k")
			require.Equal(t, http.StatusCreated, again.Code, "%q", again.Body)
			require.Equal(t, 2, runs)
			replay := send(h, "/orders", "k")
			requireReplayed(t, replay)
			require.Equal(t, `{"order":2}`, replay.Body.String())
			require.Equal(t, 2, runs)

			if want.Code >= 400 {
				runs = 0
				h = wire(latchgin.Use(latch.Lock(newLocker(), "user", byUser, latch.WithCooldown(time.Minute))))
				require.Equal(t, want.Code, send(h, "/orders", "").Code)
				require.Equal(t, http.StatusCreated, send(h, "/orders", "").Code, "no cool-down")
				require.Equal(t, http.StatusTooManyRequests, send(h, "/orders", "").Code, "there is one")
			}

			committed := gin.New()
			committed.Use(errorHandler())
			committed.POST("/orders", latchgin.Use(once()), func(c *gin.Context) {
				_ = lock.Commit(c.Request.Context())
				fails(c)
			})
			send(committed, "/orders", "k")
			require.Contains(t, send(committed, "/orders", "k").Body.String(), "result-not-replayable")
		})
	}
}

// TestErrorsOutside: an error from before the guard is not the handler's.
func TestErrorsOutside(t *testing.T) {
	t.Parallel()
	runs := 0
	r := gin.New()
	r.Use(func(c *gin.Context) { _ = c.Error(errAway); c.Next() })
	r.POST("/orders", latchgin.Use(once()), func(c *gin.Context) { runs++; c.Status(http.StatusNoContent) })
	require.Equal(t, http.StatusNoContent, send(r, "/orders", "k").Code)
	again := send(r, "/orders", "k")
	requireReplayed(t, again)
	require.Equal(t, http.StatusNoContent, again.Code)
	require.Equal(t, 1, runs)
}

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	goleak.VerifyTestMain(m)
}

var (
	byUser                                 = guardtest.ByUser
	newLocker, once, send, requireReplayed = guardtest.InMemory, guardtest.Once, guardtest.Send, guardtest.RequireReplayed
)

func unguarded(c *gin.Context) { c.Next() }
