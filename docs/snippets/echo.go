package snippets

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// EchoGuard makes an echo middleware from a guard. A handler's error becomes its
// answer inside the guard, which can keep it like any other answer.
func EchoGuard(guard func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			request, response := c.Request(), c.Response()
			defer func() { c.SetRequest(request); c.SetResponse(response) }()
			guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(response, request)
			return nil
		}
	}
}
