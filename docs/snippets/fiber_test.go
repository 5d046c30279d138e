package snippets_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func fiberRoutes(locker *lock.Locker, createOrder, listOrders fiber.Handler) http.Handler {
	guarded := fiber.New()
	guarded.Post("/orders", createOrder)
	rest := fiber.New()
	rest.Get("/orders", listOrders)

	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
	onePerUser := latch.Lock(locker, "user", keyfunc.Context(auth.UserID))

	mux := http.NewServeMux()
	mux.Handle("POST /orders", chain(adaptor.FiberApp(guarded), auth.Require, once, onePerUser))
	mux.Handle("/", adaptor.FiberApp(rest))
	return mux
}

// TestFiberIsGuarded: as its page has it, one order of three at once, and one that fails runs again.
func TestFiberIsGuarded(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	var h http.Handler
	h = fiberRoutes(newLocker(t, memstore.New()), func(c fiber.Ctx) error {
		switch runs.Add(1) {
		case 1:
			return fiber.NewError(http.StatusInternalServerError, "away")
		case 2:
			require.Equal(t, 409, ask(h, "POST", "/orders", "another").Code)
		}
		return c.Status(201).SendString("order")
	}, func(c fiber.Ctx) error { return c.SendString("orders") })
	require.Equal(t, 500, ask(h, "POST", "/orders", "k").Code)
	require.Equal(t, 201, ask(h, "POST", "/orders", "k").Code)
	again := ask(h, "POST", "/orders", "k")
	require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
	require.Equal(t, "order", again.Body.String())
	require.EqualValues(t, 2, runs.Load())
	for _, path := range []string{"/Orders", "/orders/"} {
		require.Contains(t, []int{404, 405}, ask(h, "POST", path, "").Code, path)
	}
	require.Equal(t, "orders", ask(h, "GET", "/orders", "").Body.String())
	require.EqualValues(t, 2, runs.Load())
}

// TestFiberBehindTwoPatterns is the twin: one app behind both patterns has a way past the guard.
func TestFiberBehindTwoPatterns(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	app.Post("/orders", func(c fiber.Ctx) error { return c.SendStatus(201) })
	mux := http.NewServeMux()
	mux.Handle("POST /orders", chain(adaptor.FiberApp(app), auth.Require, latch.Lock(newLocker(t, memstore.New()), "user", keyfunc.Context(auth.UserID))))
	mux.Handle("/", adaptor.FiberApp(app))
	require.Equal(t, 201, ask(mux, "POST", "/Orders", "").Code)
}

// TestFiberTheWrongWay: the second order of a user runs inside the first, under a Lock.
func TestFiberTheWrongWay(t *testing.T) {
	t.Parallel()
	inside := 0
	var h http.Handler
	var log bytes.Buffer
	l := newLocker(t, memstore.New(), lock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	app := fiber.New()
	app.Use(adaptor.HTTPMiddleware(auth.Require), adaptor.HTTPMiddleware(latch.Lock(l, "user", keyfunc.Context(auth.UserID))))
	app.Post("/orders", func(c fiber.Ctx) error {
		if inside++; inside == 1 {
			require.Equal(t, 201, ask(h, "POST", "/orders", "").Code)
		}
		return c.SendStatus(201)
	})
	h = adaptor.FiberApp(app)
	require.Equal(t, 201, ask(h, "POST", "/orders", "").Code)
	require.Equal(t, 2, inside)
	require.Equal(t, 1, strings.Count(log.String(), "docs/routers.md"), "it is logged once")
}
