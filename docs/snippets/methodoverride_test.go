package snippets_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gorilla/handlers"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestMethodOverrideInsideTheGuard: two POSTs with one key that a middleware inside the guard turns
// into a PATCH and a DELETE are two requests. Outside the guard, it makes no difference.
func TestMethodOverrideInsideTheGuard(t *testing.T) {
	t.Parallel()
	for name, wire := range map[string]func(guard func(http.Handler) http.Handler, h http.Handler) http.Handler{
		"inside": func(guard func(http.Handler) http.Handler, h http.Handler) http.Handler {
			return guard(handlers.HTTPMethodOverrideHandler(h))
		},
		"outside": func(guard func(http.Handler) http.Handler, h http.Handler) http.Handler {
			return handlers.HTTPMethodOverrideHandler(guard(h))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			h := wire(latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				_, _ = fmt.Fprint(w, r.Method)
			}))
			for _, again := range []bool{false, true} {
				for _, method := range []string{"PATCH", "DELETE", "PUT", ""} {
					r := httptest.NewRequest(http.MethodPost, "/orders/7", http.NoBody)
					r.Header.Set("Idempotency-Key", "k")
					if method != "" || again { // an empty one is none
						r.Header.Set("X-HTTP-Method-Override", method)
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					require.Equal(t, cmp.Or(method, "POST"), w.Body.String())
				}
			}
			require.Equal(t, 4, runs)
		})
	}
}
