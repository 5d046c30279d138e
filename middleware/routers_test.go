package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
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

// TestOneRouteOfSeveralPathsIsOneRequest: routers serve paths that differ in slashes by one route,
// and most leave the URL of the request as it came. One key makes one order there, and so does one
// content without a key.
func TestOneRouteOfSeveralPathsIsOneRequest(t *testing.T) {
	t.Parallel()
	chiBehind := func(outside ...func(http.Handler) http.Handler) func(h http.Handler) http.Handler {
		return func(h http.Handler) http.Handler {
			r := chi.NewRouter()
			r.Use(outside...)
			r.Method(http.MethodPost, "/orders", h)
			return r
		}
	}
	both := []string{"/orders", "/orders/", "//orders", "//orders/", "/./orders", "/x/../orders"}
	routers := map[string]struct {
		route func(h http.Handler) http.Handler
		paths []string // which the route serves
	}{
		"chi, StripSlashes":               {chiBehind(chimiddleware.StripSlashes), []string{"/orders", "/orders/"}},
		"chi, CleanPath":                  {chiBehind(chimiddleware.CleanPath), []string{"/orders", "//orders", "/orders/.", "/./orders"}},
		"chi, CleanPath and StripSlashes": {chiBehind(chimiddleware.CleanPath, chimiddleware.StripSlashes), both},
		"chi, RedirectSlashes":            {chiBehind(chimiddleware.RedirectSlashes), []string{"/orders"}},
		"ServeMux": {func(h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /orders", h)
			mux.Handle("POST /orders/{$}", h)
			return mux
		}, []string{"/orders", "/orders/"}},
		"ServeMux, stripped": {func(h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /api/{rest...}", http.StripPrefix("/api/", h))
			mux.Handle("POST /v1/{rest...}", http.StripPrefix("/v1", h))
			return mux
		}, []string{"/api/orders", "/v1/orders", "/v1/orders/"}},
		"no router": {func(h http.Handler) http.Handler { return h }, both},
	}
	for name, tt := range routers {
		l := newLocker(t, memstore.New())
		for guardName, guard := range map[string]func(http.Handler) http.Handler{
			"Idempotent": once(l),
			"Dedupe":     latch.Dedupe(l, byUser, time.Hour),
		} {
			t.Run(name+", "+guardName, func(t *testing.T) {
				t.Parallel()
				var e effects
				h := tt.route(guard(http.HandlerFunc(e.answer)))
				var first *httptest.ResponseRecorder
				for _, path := range tt.paths {
					r, ok := parsed(path)
					require.True(t, ok)
					w := serve(h, r)
					if first == nil {
						first = w
						require.Equal(t, http.StatusCreated, w.Code, path)
						continue
					}
					requireReplay(t, first, w)
				}
				e.require(t, 1)
			})
		}
	}
}

// TestRoutersThatRedirectPaths: a client that follows the redirect to the clean path has one order.
func TestRoutersThatRedirectPaths(t *testing.T) {
	t.Parallel()
	var e effects
	guarded := once(newLocker(t, memstore.New()))(http.HandlerFunc(e.answer))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/", guarded) // "/orders" redirects to it
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	for _, path := range []string{"/orders", "/orders/", "//orders", "/x/../orders/"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path, nil)
		require.NoError(t, err)
		req.Header.Set("X-User-ID", "42")
		req.Header.Set("Idempotency-Key", "k")
		resp, err := srv.Client().Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, http.StatusCreated, resp.StatusCode, path)
	}
	e.require(t, 1)
}
