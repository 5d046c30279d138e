package snippets_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	latchecho "github.com/httplatch/httplatch/middleware/echo"
	latchgin "github.com/httplatch/httplatch/middleware/gin"
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
			require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
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
	require.Empty(t, cancelled.Header().Get("Idempotent-Replayed"), "it is no repeat of the payment")
	require.EqualValues(t, 4, app.effects.Load())
}

// TestPathValueNeedsItsRoute is what the page of chi says about Use and With.
func TestPathValueNeedsItsRoute(t *testing.T) {
	t.Parallel()
	onePerOrder := latch.Lock(newLocker(t, memstore.New()), "order", keyfunc.PathValue("id"))
	ok := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }
	inside, around := chi.NewRouter(), chi.NewRouter()
	inside.Route("/orders/{id}", func(r chi.Router) {
		r.Use(onePerOrder)
		r.Post("/pay", ok)
	})
	around.Use(onePerOrder)
	around.Post("/orders/{id}/pay", ok)
	require.Equal(t, 200, ask(inside, "POST", "/orders/7/pay", "").Code)
	refused := ask(around, "POST", "/orders/7/pay", "")
	require.Equal(t, 400, refused.Code)
	require.Contains(t, refused.Body.String(), "#key-missing")
}

// TestStrippedPaths is what the page of net/http says about StripPrefix.
func TestStrippedPaths(t *testing.T) {
	t.Parallel()
	for _, outside := range []bool{false, true} {
		var app application
		once := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey)
		mux := http.NewServeMux()
		for _, version := range []string{"/v1", "/v2"} {
			if outside {
				mux.Handle(version+"/", once(http.StripPrefix(version, app.handler(201))))
			} else {
				mux.Handle(version+"/", http.StripPrefix(version, once(app.handler(201))))
			}
		}
		ask(mux, "POST", "/v1/orders", "k")
		ask(mux, "POST", "/v2/orders", "k")
		require.Equal(t, outside, app.effects.Load() == 2)
	}
}
