package main

import (
	"net/http"
	"path"
	"strings"
)

// cleanPaths answers 404 to paths with empty, "." or ".." segments. ServeMux
// would redirect them, and chi takes some for an order whose ID is empty.
func cleanPaths(router http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.EscapedPath(); p != path.Clean(p) {
			refuse(w, errNothingHere)
			return
		}
		router.ServeHTTP(w, r)
	})
}

var errNothingHere = &refusal{http.StatusNotFound, "There is nothing at this path."}

// noRoute answers a request that has no route: 405 if its path has a route for
// another method, else 404. matches asks the router.
func noRoute(matches func(r *http.Request, method string) bool) http.HandlerFunc {
	methods := []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	}
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, m := range methods {
			if matches(r, m) {
				allowed = append(allowed, m)
			}
		}
		if len(allowed) == 0 {
			refuse(w, errNothingHere)
			return
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		refuse(w, &refusal{http.StatusMethodNotAllowed, "This path does not take this method; see Allow."})
	}
}
