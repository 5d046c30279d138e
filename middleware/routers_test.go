package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestRouters mounts one guard by path value on the routers whose path values
// differ, and checks that they agree on equal values.
func TestRouters(t *testing.T) {
	t.Parallel()
	routers := map[string]func(guard func(http.Handler) http.Handler, h http.Handler) http.Handler{
		"stdlib": func(guard func(http.Handler) http.Handler, h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /orders/{id}/pay", guard(h))
			return mux
		},
		"chi": func(guard func(http.Handler) http.Handler, h http.Handler) http.Handler {
			r := chi.NewRouter()
			r.With(guard).Method(http.MethodPost, "/orders/{id}/pay", h)
			return r
		},
		"chi, mounted": func(guard func(http.Handler) http.Handler, h http.Handler) http.Handler {
			orders := chi.NewRouter()
			orders.With(guard).Method(http.MethodPost, "/{id}/pay", h)
			r := chi.NewRouter()
			r.Mount("/orders", orders)
			return r
		},
	}
	for name, route := range routers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLocker(t, memstore.New())
			pay := func(h http.Handler, path string) int {
				return serve(h, httptest.NewRequest(http.MethodPost, path, nil)).Code
			}
			var h http.Handler
			codes := make(map[string]int)
			h = route(latch.Lock(l, "order", keyfunc.PathValue("id")), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/orders/7/pay" && len(codes) == 0 {
					for _, path := range []string{"/orders/7/pay", "/orders/%37/pay", "/orders/8/pay", "/orders/7%2F8/pay"} {
						codes[path] = 0
						codes[path] = pay(h, path)
					}
				}
				w.WriteHeader(http.StatusCreated)
			}))
			require.Equal(t, http.StatusCreated, pay(h, "/orders/7/pay"))
			require.Equal(t, map[string]int{
				"/orders/7/pay":     http.StatusConflict,
				"/orders/%37/pay":   http.StatusConflict,
				"/orders/8/pay":     http.StatusCreated,
				"/orders/7%2F8/pay": http.StatusCreated,
			}, codes)
		})
	}
}
