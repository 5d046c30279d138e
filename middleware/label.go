package middleware

import (
	"net/http"

	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// WithName sets the name of the guard in metrics, logs and the console, and in what its
// records say of themselves: "idempotent" or "dedupe" unless set. It is no part of the
// records' keys, so a guard that is given one, or another one, finds what it has kept. It
// panics if name is empty, has more than 64 bytes, or a control character.
func WithName(name string) IdempotentOption {
	must(setting.ValidateGuardName(name), "WithName(%q)", name)
	return idempotentOption(func(c *idempotentConfig) { c.guardName = name })
}

// WithLabel sets what operators find a record by (package console): what f returns, such
// as an order number or a hash, or "" for nothing. Unless set it is the scope, mostly the
// user ID. A label stands in the store as it is, unless that is sealed, for as long as
// the record is kept; more than 128 bytes of it are cut, and end with a hash. f gets the
// guard's own request, before the handler, and must be safe for concurrent use. It
// panics if f is nil.
func WithLabel(f func(r *http.Request) string) IdempotentOption {
	if f == nil {
		panic("middleware.WithLabel: nil function")
	}
	return idempotentOption(func(c *idempotentConfig) { c.label = f })
}
