package snippets_test

import (
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/walk"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	latchecho "github.com/httplatch/httplatch/middleware/echo"
	latchgin "github.com/httplatch/httplatch/middleware/gin"
	"github.com/httplatch/httplatch/middleware/policy"
)

func chiRoutes(locker *lock.Locker, createOrder, payOrder, cancelOrder, showOrder http.HandlerFunc) http.Handler {
	r := chi.NewRouter()

	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
	onePerUser := latch.Lock(locker, "user", keyfunc.Context(auth.UserID))
	onePerOrder := latch.Lock(locker, "order", keyfunc.PathValue("id"))

	r.Use(middleware.Recoverer, auth.Require)
	r.With(once, onePerUser).Post("/orders", createOrder)
	r.Route("/orders/{id}", func(r chi.Router) {
		r.With(once, onePerOrder).Post("/pay", payOrder)
		r.With(once, onePerOrder).Post("/cancel", cancelOrder)
		r.Get("/", showOrder)
	})
	return r
}

func stdlibRoutes(locker *lock.Locker, createOrder, payOrder http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()

	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
	onePerUser := latch.Lock(locker, "user", keyfunc.Context(auth.UserID))
	onePerOrder := latch.Lock(locker, "order", keyfunc.PathValue("id"))

	mux.Handle("POST /orders", chain(createOrder, auth.Require, once, onePerUser))
	mux.Handle("POST /orders/{id}/pay", chain(payOrder, auth.Require, once, onePerOrder))
	return mux
}

// chain wraps h in guards; the first guard is the outermost.
func chain(h http.HandlerFunc, guards ...func(http.Handler) http.Handler) http.Handler {
	guarded := http.Handler(h)
	for _, guard := range slices.Backward(guards) {
		guarded = guard(guarded)
	}
	return guarded
}

func ginRoutes(locker *lock.Locker, createOrder gin.HandlerFunc) http.Handler {
	r := gin.New()
	r.Use(func(c *gin.Context) {
		auth.Require(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { c.Request = r })).ServeHTTP(c.Writer, c.Request)
	})

	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
	onePerUser := latch.Lock(locker, "user", keyfunc.Context(auth.UserID))

	r.POST("/orders", latchgin.Use(once), latchgin.Use(onePerUser), createOrder)
	return r
}

func echoRoutes(locker *lock.Locker, createOrder echo.HandlerFunc) http.Handler {
	e := echo.New()
	e.Use(echo.WrapMiddleware(auth.Require))

	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
	onePerUser := latch.Lock(locker, "user", keyfunc.Context(auth.UserID))

	e.POST("/orders", createOrder, latchecho.Use(once), latchecho.Use(onePerUser))
	return e
}

// TestRoutesAreGuarded: on every router a repeat gets the first answer, and
// a second order of one user has to wait.
func TestRoutesAreGuarded(t *testing.T) {
	t.Parallel()
	for name, wire := range map[string]func(l *lock.Locker, a *application) http.Handler{
		"chi": func(l *lock.Locker, a *application) http.Handler {
			return chiRoutes(l, a.handler(201), a.handler(200), a.handler(200), a.handler(200))
		},
		"stdlib": func(l *lock.Locker, a *application) http.Handler {
			return stdlibRoutes(l, a.handler(201), a.handler(200))
		},
		"gin": func(l *lock.Locker, a *application) http.Handler {
			return ginRoutes(l, gin.WrapF(a.handler(201)))
		},
		"echo": func(l *lock.Locker, a *application) http.Handler {
			return echoRoutes(l, echo.WrapHandler(a.handler(201)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var app application
			h := wire(newLocker(t, memstore.New()), &app)
			app.whileIn(func() {
				require.Equal(t, 409, ask(h, "POST", "/orders", "another").Code)
			})
			require.Equal(t, 201, ask(h, "POST", "/orders", "k").Code)
			again := ask(h, "POST", "/orders", "k")
			require.Equal(t, 201, again.Code)
			require.True(t, replayed(again))
			require.EqualValues(t, 1, app.effects.Load())
			require.Equal(t, 400, ask(h, "POST", "/orders", "").Code)
		})
	}
}

// TestRoutesOfOneOrderExclude: one guard on two routes is one lock, and two
// records.
func TestRoutesOfOneOrderExclude(t *testing.T) {
	t.Parallel()
	var app application
	h := chiRoutes(newLocker(t, memstore.New()), app.handler(201), app.handler(200), app.handler(200), app.handler(200))
	app.whileIn(func() {
		require.Equal(t, 409, ask(h, "POST", "/orders/7/cancel", "c").Code)
		require.Equal(t, 200, ask(h, "POST", "/orders/8/cancel", "c").Code)
		require.Equal(t, 200, ask(h, "GET", "/orders/7/", "").Code)
	})
	require.Equal(t, 200, ask(h, "POST", "/orders/7/pay", "k").Code)
	cancelled := ask(h, "POST", "/orders/7/cancel", "k")
	require.Equal(t, 200, cancelled.Code)
	require.False(t, replayed(cancelled), "it is no repeat of the payment")
	require.EqualValues(t, 4, app.effects.Load())
}

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
	require.True(t, replayed(again))
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

var createOrder, payOrder http.HandlerFunc = answer(201), answer(200)

func answer(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

func mount(r chi.Router, file io.Reader, locker *lock.Locker) error {
	guards, err := policy.Load(file, locker, map[string]keyfunc.Func{
		"user":            keyfunc.Context(auth.UserID),
		"order":           keyfunc.PathValue("id"),
		"idempotency-key": keyfunc.IdempotencyKey,
	})
	if err != nil {
		return err
	}
	r.Use(auth.Require)
	r.With(guards.Get("order-once"), guards.Get("order-lock")).Post("/orders", createOrder)
	r.With(guards.Get("pay-once"), guards.Get("pay-lock")).Post("/orders/{id}/pay", payOrder)
	return guards.Check()
}

// TestPoliciesOfThePage: its file loads and does what it says, and its mistakes
// are those of a file with mistakes.
func TestPoliciesOfThePage(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, memstore.New())
	for _, b := range walk.Blocks(t, "../policies.md") {
		r := chi.NewRouter()
		switch b.Language {
		case "json":
			require.NoError(t, mount(r, strings.NewReader(b.Text), locker))
			require.Equal(t, 201, ask(r, "POST", "/orders", "k").Code)
			require.Equal(t, "true", ask(r, "POST", "/orders", "k").Header().Get("Idempotent-Replayed"))
			require.Equal(t, 429, ask(r, "POST", "/orders", "another").Code)
			require.Equal(t, 200, ask(r, "POST", "/orders/7/pay", "").Code)
			require.Equal(t, "true", ask(r, "POST", "/orders/7/pay", "").Header().Get("Idempotent-Replayed"))
		case "text":
			mistakes, err := os.Open("../../middleware/policy/testdata/mistakes.json")
			require.NoError(t, err)
			defer mistakes.Close()
			require.ErrorContains(t, mount(r, mistakes, locker), b.Text)
		}
	}
}
