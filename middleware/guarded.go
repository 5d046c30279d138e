package middleware

import "net/http"

// guarded is next behind the guard whose serve is given.
func guarded(next http.Handler, guard *guardLog, outlived *outlivedHint, serve func(http.ResponseWriter, *http.Request, http.Handler)) http.Handler {
	early := answersEarly(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if safe(r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		if early {
			outlived.log(r.Context(), guard)
		}
		serve(w, r, next)
	})
}

// safe methods ask for no effect, so there is nothing to guard.
func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
