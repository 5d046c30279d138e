package middleware

import "github.com/httplatch/httplatch/middleware/internal/record"

// RequestHeaders returns the names of the request headers that the guards read, for the headers that a CORS
// middleware allows: a script of another origin can then send a key. The caller owns the slice. docs/cors.md shows
// the wiring.
func RequestHeaders() []string { return []string{"Idempotency-Key"} }

// ResponseHeaders returns the names of the headers that the guards set on answers, for the headers
// that a CORS middleware exposes: a script of another origin can then read them. The caller owns the
// slice.
func ResponseHeaders() []string {
	return []string{"Idempotency-Key", record.LifetimeHeader, record.ReplayedHeader, record.ProblemHeader, "Retry-After"}
}
