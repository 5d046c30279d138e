package latchgin_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

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
// guard, so the guard keeps none, frees the key, and leaves the answer to that middleware. The next request
// meets no cool-down. After a commit, it gets no success either.
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
