package middleware

import (
	"net/http"

	"github.com/httplatch/httplatch/internal/httpmethod"
)

// Refuse refuses requests with an Idempotency-Key, with 400 (key-not-supported), and lets all other requests pass. It
// is for routes without [Idempotent]. A client that sends a key repeats its request after a lost answer, and a route
// that ignored the key would make a second order of it:
//
//	mux.Handle("POST /comments", latch.Refuse()(createComment))
//
// Do not mount it around or inside of a guard that takes the header. Safe methods pass, as in every guard, and so
// does a form that a browser sends by itself ("Sec-Fetch-Mode: navigate"): its key is the browser's, for each form
// another one. Firefox makes such keys if network.http.idempotencyKey.enabled is set. The requests of its scripts get
// them, too, and are refused.
func Refuse() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if len(r.Header["Idempotency-Key"]) == 0 || httpmethod.Safe(r.Method) || r.Header.Get("Sec-Fetch-Mode") == "navigate" {
				next.ServeHTTP(w, r)
				return
			}
			ProblemKeyNotSupported.problem(nil).Respond(w, r, nil)
		})
	}
}
