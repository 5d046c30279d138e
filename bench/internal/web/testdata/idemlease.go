package web

import (
	"net/http"

	"github.com/repenguin22/idemlease/httpidem"
	"github.com/repenguin22/idemlease/memstore"
)

// Idemlease guards as Idempotent does: with the caller as the key's scope, and
// with its own memory store.
func Idemlease() func() func(http.Handler) http.Handler {
	return func() func(http.Handler) http.Handler {
		return httpidem.New(memstore.New(), httpidem.Require(true), httpidem.KeyScope(func(r *http.Request) string {
			return r.Header.Get("X-User-ID")
		}))
	}
}
