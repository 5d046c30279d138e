package main

import "net/http"

// stdlibRouter serves routes with http.ServeMux.
func stdlibRouter(routes []route) http.Handler {
	mux := http.NewServeMux()
	for _, rt := range routes {
		pattern := rt.path
		if pattern == "/" {
			pattern = "/{$}" // "/" alone is every path
		}
		mux.Handle(rt.method+" "+pattern, rt.handler)
	}
	matches := func(r *http.Request, method string) bool {
		probe := *r
		probe.Method = method
		_, pattern := mux.Handler(&probe)
		return pattern != ""
	}
	unrouted := noRoute(matches)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !matches(r, r.Method) {
			unrouted(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
