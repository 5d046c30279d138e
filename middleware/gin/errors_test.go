package latchgin_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latchgin "github.com/httplatch/httplatch/middleware/gin"

	latch "github.com/httplatch/httplatch/middleware"
)

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

// TestErrorsRunAgain: the answer to an error of the handler comes from middleware outside the
// guard, so the guard keeps none, frees the key, and leaves the answer to that middleware.
func TestErrorsRunAgain(t *testing.T) {
	t.Parallel()
	for name, fails := range failing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
		})
	}
}

// TestErrorsStartNoCooldown: the failed request leaves no 429 to the next.
func TestErrorsStartNoCooldown(t *testing.T) {
	t.Parallel()
	for name, fails := range failing {
		if name == "c.AbortWithError of success" {
			continue // its client has a 200
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			r := gin.New()
			r.Use(errorHandler())
			r.POST("/orders", latchgin.Use(latch.Lock(newLocker(), "user", byUser, latch.WithCooldown(time.Minute))), func(c *gin.Context) {
				if runs++; runs == 1 {
					fails(c)
					return
				}
				c.Status(http.StatusCreated)
			})
			require.GreaterOrEqual(t, send(r, "/orders", "").Code, 400)
			require.Equal(t, http.StatusCreated, send(r, "/orders", "").Code)
			require.Equal(t, http.StatusTooManyRequests, send(r, "/orders", "").Code, "there is a cool-down")
		})
	}
}

// TestErrorsAfterCommit: what happened does not happen again, and the repeat does not get a
// success either.
func TestErrorsAfterCommit(t *testing.T) {
	t.Parallel()
	for name, fails := range failing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			r := gin.New()
			r.Use(errorHandler())
			r.POST("/orders", latchgin.Use(once()), func(c *gin.Context) {
				runs++
				_ = lock.Commit(c.Request.Context())
				fails(c)
			})
			send(r, "/orders", "k")
			again := send(r, "/orders", "k")
			require.Equal(t, http.StatusConflict, again.Code)
			require.Contains(t, again.Body.String(), "result-not-replayable")
			require.Equal(t, 1, runs)
		})
	}
}

// TestErrorsOfWaiters: a request that waited for one that failed gets no success out of it.
func TestErrorsOfWaiters(t *testing.T) {
	t.Parallel()
	runs := 0
	var h http.Handler
	waited := make(chan int)
	r := gin.New()
	r.Use(errorHandler())
	r.POST("/orders", latchgin.Use(latch.Idempotent(newLocker(lock.WithWait(time.Minute)), byUser, keyfunc.IdempotencyKey)), func(c *gin.Context) {
		runs++
		go func() { waited <- send(h, "/orders", "k").Code }()
		time.Sleep(50 * time.Millisecond)
		_ = c.Error(errAway)
	})
	h = r
	require.Equal(t, 500, send(h, "/orders", "k").Code)
	require.Equal(t, 503, <-waited)
	require.Equal(t, 1, runs)
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

// TestErrorsBesideAnAnswer: a handler that has answered has answered.
func TestErrorsBesideAnAnswer(t *testing.T) {
	t.Parallel()
	runs := 0
	r := gin.New()
	r.POST("/orders", latchgin.Use(once()), func(c *gin.Context) {
		runs++
		c.JSON(http.StatusCreated, gin.H{"order": runs})
		_ = c.Error(errors.New("mail was not sent"))
	})
	for range 2 {
		require.Equal(t, `{"order":1}`, send(r, "/orders", "k").Body.String())
	}
}

// TestErrorHandlerInside: its answer is kept like any other.
func TestErrorHandlerInside(t *testing.T) {
	t.Parallel()
	for status, wantRuns := range map[int]int{http.StatusInternalServerError: 2, http.StatusUnprocessableEntity: 1} {
		runs := 0
		r := gin.New()
		r.POST("/orders", latchgin.Use(once()), func(c *gin.Context) {
			c.Next()
			if len(c.Errors) > 0 {
				c.JSON(status, gin.H{"error": c.Errors.Last().Error()})
			}
		}, func(c *gin.Context) { runs++; _ = c.Error(errAway) })
		for range 2 {
			w := send(r, "/orders", "k")
			require.Equal(t, status, w.Code)
			require.Equal(t, `{"error":"database is away"}`, w.Body.String())
		}
		require.Equal(t, wantRuns, runs, status)
	}
}
