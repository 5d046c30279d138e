package snippets_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/alexedwards/scs/v2"
	gingzip "github.com/gin-contrib/gzip"
	ginsessions "github.com/gin-contrib/sessions"
	gincookie "github.com/gin-contrib/sessions/cookie"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimw "github.com/go-chi/chi/v5/middleware"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/compress"
	"github.com/gorilla/handlers"
	"github.com/gorilla/sessions"
	"github.com/klauspost/compress/gzhttp"
	"github.com/labstack/echo/v5"
	echomw "github.com/labstack/echo/v5/middleware"
	"github.com/urfave/negroni/v3"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	latchecho "github.com/httplatch/httplatch/middleware/echo"
	latchgin "github.com/httplatch/httplatch/middleware/gin"
)

type (
	guard = func(http.Handler) http.Handler
	wirer = func(g guard, o *orders) http.Handler
)

const (
	outside = "outside"
	inside  = "inside"
)

const compressOutside = "mount it outside: each client gets the coding that it takes"

func wrappings() []wrapping {
	return slices.Concat(stdlibWritings(), chiWritings(), ginWritings(), echoWritings(), fiberWritings())
}

func bothSides(framework, name, soOutside, soInside string, on func(where string) wirer) []wrapping {
	return []wrapping{
		{framework, name, outside, soOutside, on(outside)},
		{framework, name, inside, soInside, on(inside)},
	}
}

// around mounts middleware of net/http on one side of the guard.
func around(wrap guard) func(where string) wirer {
	return func(where string) wirer {
		return func(g guard, o *orders) http.Handler {
			if where == outside {
				return wrap(g(o))
			}
			return g(wrap(o))
		}
	}
}

func stdlibWritings() []wrapping {
	const name = "net/http"
	gz, err := gzhttp.NewWrapper()
	if err != nil {
		panic(err)
	}
	manager := scs.New()
	return slices.Concat(
		bothSides(name, "`http.TimeoutHandler`", "", "its `503` frees the key while the handler runs: mount it outside", around(func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Minute, "late") })),
		bothSides(name, "klauspost `gzhttp`", "", compressOutside, around(func(h http.Handler) http.Handler { return gz(h) })),
		bothSides(name, "gorilla `handlers.CombinedLoggingHandler`", "", "", around(func(h http.Handler) http.Handler { return handlers.CombinedLoggingHandler(io.Discard, h) })),
		bothSides(name, "`otelhttp`", "", "", around(otelhttp.NewMiddleware("orders"))),
		bothSides(name, "negroni", "", "", around(func(h http.Handler) http.Handler {
			n := negroni.New(negroni.NewRecovery())
			n.UseHandler(h)
			return n
		})),
		bothSides(name, "scs `LoadAndSave`", "", "mount it outside, and scope by its user: a replay has no cookie of the first client", around(func(h http.Handler) http.Handler {
			return manager.LoadAndSave(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				manager.Put(r.Context(), "seen", "1")
				h.ServeHTTP(w, r)
			}))
		})),
		bothSides(name, "an error page in place of the body of a `500`", "", "", around(errorPages)),
		bothSides(name, "a buffer that sends all at the end", "", "", around(buffering)),
		[]wrapping{{name, "a writer of another library, past the guard", outside, "hand the guard's writer on", func(g guard, o *orders) http.Handler {
			return chimw.NoCache(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				outer := chimw.NewWrapResponseWriter(w, r.ProtoMajor)
				g(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { o.ServeHTTP(outer, r) })).ServeHTTP(outer, r)
			}))
		}}},
	)
}

// errorPages replaces the body of each 500, as middleware for error pages does.
func errorPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&errorPage{ResponseWriter: w}, r)
	})
}

type errorPage struct {
	http.ResponseWriter
	replaced bool
}

func (e *errorPage) WriteHeader(status int) {
	if e.replaced = status >= 500; e.replaced {
		e.Header().Set("Content-Type", "text/html; charset=utf-8")
		e.ResponseWriter.WriteHeader(status)
		_, _ = io.WriteString(e.ResponseWriter, "<h1>Sorry</h1>")
		return
	}
	e.ResponseWriter.WriteHeader(status)
}

func (e *errorPage) Write(p []byte) (int, error) {
	if e.replaced {
		return len(p), nil
	}
	return e.ResponseWriter.Write(p)
}

// buffering sends an answer when its handler has returned.
func buffering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := httptest.NewRecorder()
		b.Body = new(bytes.Buffer)
		next.ServeHTTP(b, r)
		maps.Copy(w.Header(), b.Header())
		w.WriteHeader(b.Code)
		_, _ = b.Body.WriteTo(w)
	})
}

func chiWritings() []wrapping {
	const name = "chi"
	with := func(mw guard) func(where string) wirer {
		return func(where string) wirer {
			return func(g guard, o *orders) http.Handler {
				r := chi.NewRouter()
				if where == outside {
					r.Use(mw)
					r.With(g).Post("/orders", o.ServeHTTP)
				} else {
					r.With(g, mw).Post("/orders", o.ServeHTTP)
				}
				return r
			}
		}
	}
	logger := chimw.RequestLogger(&chimw.DefaultLogFormatter{Logger: discard{}, NoColor: true})
	return slices.Concat(
		bothSides(name, "`middleware.Compress`", "", compressOutside, with(chimw.Compress(5))),
		bothSides(name, "`middleware.RequestLogger` (WrapResponseWriter)", "", "", with(logger)),
		bothSides(name, "`middleware.Recoverer`", "", "", with(chimw.Recoverer)),
		bothSides(name, "`middleware.Timeout`", "", "its `504` frees the key: mount it outside", with(chimw.Timeout(time.Minute))),
	)
}

type discard struct{}

func (discard) Print(...any) {}

func ginOrder(o *orders) gin.HandlerFunc {
	return func(c *gin.Context) {
		if o.failing() {
			_ = c.Error(fmt.Errorf("away"))
			return
		}
		c.Header("Location", fmt.Sprintf("/orders/%d", o.runs))
		c.String(http.StatusCreated, "%s", o.text())
	}
}

// ginErrors is the middleware of gin's documentation.
func ginErrors(c *gin.Context) {
	c.Next()
	if len(c.Errors) > 0 {
		c.JSON(http.StatusInternalServerError, gin.H{"message": c.Errors.Last().Error()})
	}
}

func ginWritings() []wrapping {
	const name = "gin"
	with := func(mw gin.HandlerFunc, handler func(o *orders) gin.HandlerFunc, also ...gin.HandlerFunc) func(where string) wirer {
		return func(where string) wirer {
			return func(g guard, o *orders) http.Handler {
				r := gin.New()
				r.Use(also...)
				if where == outside {
					r.Use(mw, latchgin.Use(g))
				} else {
					r.Use(latchgin.Use(g), mw)
				}
				r.POST("/orders", handler(o))
				return r
			}
		}
	}
	session := func(h func(o *orders) gin.HandlerFunc) func(o *orders) gin.HandlerFunc {
		return func(o *orders) gin.HandlerFunc {
			handler := h(o)
			return func(c *gin.Context) {
				s := ginsessions.Default(c)
				s.Set("seen", 1)
				_ = s.Save()
				handler(c)
			}
		}
	}
	panics := func(o *orders) gin.HandlerFunc {
		handler := ginOrder(o)
		return func(c *gin.Context) {
			if handler(c); len(c.Errors) > 0 {
				c.Errors = nil
				panic("away")
			}
		}
	}
	recovery := gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) })
	var rows []wrapping
	rows = append(rows, bothSides(name, "error middleware (`c.Errors`)", "", "", with(ginErrors, ginOrder))...)
	rows = append(rows, bothSides(name, "`gin.Recovery`, the handler panics", "", "", with(recovery, panics))...)
	rows = append(rows, bothSides(name, "gin-contrib `gzip`", "", compressOutside, with(gingzip.Gzip(gingzip.DefaultCompression), ginOrder, ginErrors))...)
	rows = append(rows, bothSides(name, "gin-contrib `sessions`, saved by the handler", "the same: the handler, which sets it, does not run", "", with(ginsessions.Sessions("session", gincookie.NewStore(make([]byte, 32))), session(ginOrder), ginErrors))...)
	return append(rows,
		wrapping{name, "middleware that answers for handlers (`c.Set`, then `c.JSON` outside)", outside, "the guard sees no answer: write it inside", func(g guard, o *orders) http.Handler {
			r := gin.New()
			r.Use(func(c *gin.Context) {
				c.Next()
				if status := c.GetInt("status"); status != 0 {
					c.String(status, "%s", o.text())
				}
			})
			r.POST("/orders", latchgin.Use(g), func(c *gin.Context) {
				c.Set("status", http.StatusCreated)
				if o.failing() {
					c.Set("status", http.StatusInternalServerError)
				}
			})
			return r
		}},
		wrapping{name, "an adapter that calls `c.Next` and leaves `c.Writer`", "is the guard", "`latchgin.Use`", func(g guard, o *orders) http.Handler {
			r := gin.New()
			r.Use(ginErrors, naiveGin(g))
			r.POST("/orders", ginOrder(o))
			return r
		}},
		wrapping{name, "`gin.WrapH(guard(h))`, before the handler", "is the guard", "guards nothing: `latchgin.Use`", func(g guard, o *orders) http.Handler {
			r := gin.New()
			r.Use(ginErrors)
			r.POST("/orders", gin.WrapH(g(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))), ginOrder(o))
			return r
		}},
	)
}

// naiveGin is the shortest adapter, in several libraries.
func naiveGin(g guard) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		g(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

func echoOrder(o *orders) echo.HandlerFunc {
	return func(c *echo.Context) error {
		if o.failing() {
			return fmt.Errorf("away")
		}
		c.Response().Header().Set("Location", fmt.Sprintf("/orders/%d", o.runs))
		return c.String(http.StatusCreated, o.text())
	}
}

func echoWritings() []wrapping {
	const name = "echo v5"
	with := func(mw echo.MiddlewareFunc) func(where string) wirer {
		return func(where string) wirer {
			return func(g guard, o *orders) http.Handler {
				e := echo.New()
				if where == outside {
					e.Use(mw, latchecho.Use(g))
				} else {
					e.Use(latchecho.Use(g), mw)
				}
				e.POST("/orders", echoOrder(o))
				return e
			}
		}
	}
	store := sessions.NewCookieStore(make([]byte, 32))
	session := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			s, _ := store.Get(c.Request(), "session")
			s.Values["seen"] = 1
			_ = s.Save(c.Request(), c.Response())
			return next(c)
		}
	}
	var rows []wrapping
	rows = append(rows, bothSides(name, "`middleware.Gzip`", "", compressOutside, with(echomw.Gzip()))...)
	rows = append(rows, bothSides(name, "`middleware.BodyDump`", "", "", with(echomw.BodyDump(func(*echo.Context, []byte, []byte, error) {})))...)
	rows = append(rows, bothSides(name, "`middleware.ContextTimeout`", "", "its `503` frees the key: mount it outside", with(echomw.ContextTimeout(time.Minute)))...)
	rows = append(rows, bothSides(name, "`middleware.Recover`", "", "", with(echomw.Recover()))...)
	rows = append(rows, bothSides(name, "gorilla `sessions`, saved before the handler", "", "mount it outside", with(session))...)
	return append(rows, wrapping{name, "`echo.WrapMiddleware(guard)`", "is the guard", "`latchecho.Use`", func(g guard, o *orders) http.Handler {
		e := echo.New()
		e.POST("/orders", echoOrder(o), echo.WrapMiddleware(g))
		return e
	}})
}

func fiberOrder(o *orders) fiber.Handler {
	return func(c fiber.Ctx) error {
		if o.failing() {
			return fmt.Errorf("away")
		}
		c.Set("Location", fmt.Sprintf("/orders/%d", o.runs))
		return c.Status(http.StatusCreated).SendString(o.text())
	}
}

func fiberWritings() []wrapping {
	const name = "fiber"
	app := func(o *orders, mw ...any) *fiber.App {
		a := fiber.New()
		for _, m := range mw {
			a.Use(m)
		}
		a.Post("/orders", fiberOrder(o))
		return a
	}
	return []wrapping{
		{name, "`adaptor.FiberApp(app)`, with `compress`", inside, compressOutside, func(g guard, o *orders) http.Handler {
			return g(adaptor.FiberApp(app(o, compress.New())))
		}},
		{name, "`adaptor.FiberApp(app)`", inside, "", func(g guard, o *orders) http.Handler { return g(adaptor.FiberApp(app(o))) }},
		{name, "`adaptor.FiberHandler(h)`", inside, "", func(g guard, o *orders) http.Handler { return g(adaptor.FiberHandler(fiberOrder(o))) }},
		{name, "`adaptor.HTTPMiddleware(guard)`", "is the guard", "**never**: no request is guarded, see [fiber](../routers.md#fiber)", func(g guard, o *orders) http.Handler {
			return adaptor.FiberApp(app(o, adaptor.HTTPMiddleware(g)))
		}},
	}
}
