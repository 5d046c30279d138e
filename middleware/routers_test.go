package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

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
