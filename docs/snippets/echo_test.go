package snippets_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/docs/snippets"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestEchoReplays(t *testing.T) {
	effects := 0
	var status int
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			status = c.Response().Status
			return err
		}
	})
	orders := e.Group("", snippets.EchoGuard(once(lock.New(memstore.New()))))
	orders.POST("/json", func(c echo.Context) error {
		effects++
		var order struct{ Sku string }
		require.NoError(t, c.Bind(&order))
		require.Equal(t, 1, lock.Attempt(c.Request().Context()))
		c.Response().Header().Set("Location", "/orders/1")
		return c.JSON(http.StatusCreated, map[string]any{"id": effects, "sku": order.Sku})
	})
	orders.POST("/status", func(c echo.Context) error { effects++; return c.NoContent(http.StatusNoContent) })
	orders.POST("/error", func(echo.Context) error { effects++; return echo.NewHTTPError(http.StatusUnprocessableEntity, "sku") })
	orders.POST("/redirect", func(c echo.Context) error { effects++; return c.Redirect(http.StatusSeeOther, "/orders/1") })
	orders.POST("/nothing", func(echo.Context) error { effects++; return nil })
	requireReplays(t, e, &effects, map[string]int{
		"/json": 201, "/status": 204, "/error": 422, "/redirect": 303, "/nothing": 200,
	})
	send(e, "/json", "k")
	require.Equal(t, http.StatusCreated, status, "middleware outside sees the answer")
}

func TestEchoFailuresRunAgain(t *testing.T) {
	effects := 0
	e := echo.New()
	e.POST("/orders", func(echo.Context) error { effects++; return errors.New("database is away") },
		snippets.EchoGuard(once(lock.New(memstore.New()))))
	for range 2 {
		require.Equal(t, 500, send(e, "/orders", "k").Code)
	}
	require.Equal(t, 2, effects)
}

func TestEchoLocks(t *testing.T) {
	e := echo.New()
	inside := 0
	e.POST("/orders", func(c echo.Context) error {
		if inside++; inside == 1 {
			require.Equal(t, http.StatusConflict, send(e, "/orders", "").Code)
		}
		return c.NoContent(http.StatusCreated)
	}, snippets.EchoGuard(onePerUser(lock.New(memstore.New()))))
	require.Equal(t, http.StatusCreated, send(e, "/orders", "").Code)
	require.Equal(t, 1, inside)
}

// TestEchoWrapMiddlewareMissesErrors is why there is an EchoGuard: the guard
// has recorded an empty 200 by the time that echo answers the error.
func TestEchoWrapMiddlewareMissesErrors(t *testing.T) {
	e := echo.New()
	e.POST("/orders", func(echo.Context) error { return echo.NewHTTPError(http.StatusUnprocessableEntity, "sku") },
		echo.WrapMiddleware(once(lock.New(memstore.New()))))
	send(e, "/orders", "k")
	again := send(e, "/orders", "k")
	require.Equal(t, http.StatusOK, again.Code)
	require.Empty(t, again.Body.String())
}
