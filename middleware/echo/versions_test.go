package latchecho_test

import (
	"net/http"
	"testing"

	echo4 "github.com/labstack/echo/v4"
	middleware4 "github.com/labstack/echo/v4/middleware"
	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	latchecho "github.com/httplatch/httplatch/middleware/echo"
	latchecho4 "github.com/httplatch/httplatch/middleware/echo/echo4"
)

// The tests of this package are for both versions of echo, whose types differ.
type (
	handler = func(c ctx) error
	wrap    = func(next handler) handler
)

// ctx has the methods of both contexts that the tests call.
type ctx interface {
	Bind(into any) error
	JSON(status int, v any) error
	NoContent(status int) error
	Param(name string) string
	Redirect(status int, url string) error
	Request() *http.Request
	String(status int, text string) error
	writer() http.ResponseWriter
}

type (
	ctx4 struct{ echo4.Context }
	ctx5 struct{ *echo.Context }
)

func (c ctx4) writer() http.ResponseWriter { return c.Response() }
func (c ctx5) writer() http.ResponseWriter { return c.Response() }

func in4(c echo4.Context) ctx  { return ctx4{c} }
func in5(c *echo.Context) ctx  { return ctx5{c} }
func out4(c ctx) echo4.Context { return c.(ctx4).Context }
func out5(c ctx) *echo.Context { return c.(ctx5).Context }

// common makes a middleware of one version one of the tests, and native the other way round.
func common[C any, H ~func(C) error](m func(H) H, in func(C) ctx, out func(ctx) C) wrap {
	return func(next handler) handler {
		h := m(func(c C) error { return next(in(c)) })
		return func(c ctx) error { return h(out(c)) }
	}
}

func native[C any, M ~func(H) H, H ~func(C) error](all []wrap, in func(C) ctx, out func(ctx) C) (list []M) {
	for _, w := range all {
		list = append(list, func(next H) H {
			h := w(func(c ctx) error { return next(out(c)) })
			return func(c C) error { return h(in(c)) }
		})
	}
	return list
}

// app is an application of either version.
type app interface {
	http.Handler
	handle(method, path string, h handler, around ...wrap)
	use(w wrap)
	// answerErrors sets what answers errors.
	answerErrors(answer func(c ctx, err error))
}

type (
	app4 struct{ *echo4.Echo }
	app5 struct{ *echo.Echo }
)

func (a app4) handle(method, path string, h handler, around ...wrap) {
	a.Add(method, path, func(c echo4.Context) error { return h(ctx4{c}) }, native[echo4.Context, echo4.MiddlewareFunc](around, in4, out4)...)
}

func (a app5) handle(method, path string, h handler, around ...wrap) {
	a.Add(method, path, func(c *echo.Context) error { return h(ctx5{c}) }, native[*echo.Context, echo.MiddlewareFunc](around, in5, out5)...)
}

func (a app4) use(w wrap) {
	a.Use(native[echo4.Context, echo4.MiddlewareFunc]([]wrap{w}, in4, out4)...)
}

func (a app5) use(w wrap) { a.Use(native[*echo.Context, echo.MiddlewareFunc]([]wrap{w}, in5, out5)...) }

func (a app4) answerErrors(answer func(c ctx, err error)) {
	a.HTTPErrorHandler = func(err error, c echo4.Context) { answer(ctx4{c}, err) }
}

func (a app5) answerErrors(answer func(c ctx, err error)) {
	a.HTTPErrorHandler = func(c *echo.Context, err error) { answer(ctx5{c}, err) }
}

type version struct {
	new          func() app
	use          func(g guard) wrap
	recovers     wrap
	httpError    func(status int, message string) error
	decompresses wrap
}

var versions = map[string]version{
	"v4": {
		func() app { return app4{echo4.New()} },
		func(g guard) wrap { return common(latchecho4.Use(g), in4, out4) },
		common(middleware4.Recover(), in4, out4),
		func(status int, message string) error { return echo4.NewHTTPError(status, message) },
		common(middleware4.Decompress(), in4, out4),
	},
	"v5": {
		func() app { return app5{echo.New()} },
		func(g guard) wrap { return common(latchecho.Use(g), in5, out5) },
		common(middleware.Recover(), in5, out5),
		func(status int, message string) error { return echo.NewHTTPError(status, message) },
		common(middleware.Decompress(), in5, out5),
	},
}

func each(t *testing.T, test func(t *testing.T, v version)) {
	t.Helper()
	t.Parallel()
	for name, v := range versions {
		parallel.Run(t, name, func(t *testing.T) { test(t, v) })
	}
}

func unguarded(next handler) handler { return next }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type guard = func(http.Handler) http.Handler

var (
	byUser                                 = guardtest.ByUser
	newLocker, once, send, requireReplayed = guardtest.InMemory, guardtest.Once, guardtest.Send, guardtest.RequireReplayed
)
