package main

import (
	"net/http"

	"github.com/go-chi/chi/v5"
)

// chiRouter serves routes with chi.
func chiRouter(routes []route) http.Handler {
	r := chi.NewRouter()
	for _, rt := range routes {
		r.Method(rt.method, rt.path, rt.handler)
		if rt.method == http.MethodGet {
			r.Method(http.MethodHead, rt.path, rt.handler) // as ServeMux does by itself
		}
	}
	unrouted := noRoute(func(req *http.Request, method string) bool {
		return r.Match(chi.NewRouteContext(), method, req.URL.EscapedPath())
	})
	r.NotFound(unrouted)
	r.MethodNotAllowed(unrouted)
	return r
}
