package latchecho

import (
	"net/http"

	"github.com/labstack/echo/v4"

	latch "github.com/httplatch/httplatch/middleware"
)

// Use makes an echo middleware of a guard: the result of [latch.Lock], [latch.Idempotent] or
// [latch.Dedupe]. Build the guard once, where routes are set up. A request that the guard
// refuses or replays does not reach the handlers behind it.
//
// It panics on a nil guard. The middleware is safe for concurrent use.
func Use(guard func(http.Handler) http.Handler) echo.MiddlewareFunc {
	if guard == nil {
		panic("latchecho.Use: nil guard")
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (unanswered error) {
			request, response := c.Request(), c.Response()
			defer func() { c.SetRequest(request); c.SetResponse(response) }()
			describe(request, c)
			guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inside := echo.NewResponse(w, c.Echo())
				c.SetRequest(r)
				c.SetResponse(inside)
				err := next(c)
				if err != nil {
					c.Echo().HTTPErrorHandler(err, c)
				}
				if err != nil && !inside.Committed {
					latch.DoNotKeep(r.Context())
					unanswered = err
				}
			})).ServeHTTP(response, request)
			return unanswered
		}
	}
}

// describe sets Pattern and the path values of the request from the route of echo.
func describe(r *http.Request, c echo.Context) {
	if path := c.Path(); path != "" {
		r.Pattern = path
	}
	values := c.ParamValues()
	for i, name := range c.ParamNames() {
		r.SetPathValue(name, values[i])
	}
}
