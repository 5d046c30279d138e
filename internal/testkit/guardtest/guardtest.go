// Package guardtest has helpers for the tests of middleware and of the packages around it: Lockers
// that are closed at the end of a test, stores that fail, and requests.
package guardtest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/httplatch/httplatch/keyfunc"
)

// Quiet logs nothing.
var Quiet = slog.New(slog.DiscardHandler)

// ByUser is the key of one user's requests.
var ByUser = keyfunc.Header("X-User-ID")

// Post returns a submission of user, or of no user if that is "".
func Post(user string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"sku":"x"}`))
	if user != "" {
		r.Header.Set("X-User-ID", user)
	}
	return r
}

// Serve returns the answer of h to r.
func Serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Created answers 201.
func Created(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

// MustNotRun is a handler that fails t.
func MustNotRun(t *testing.T) http.HandlerFunc {
	t.Helper()
	return func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }
}

// Keyed returns a submission of user 42 with this key.
func Keyed(key string) *http.Request { return KeyedBody(key, `{"sku":"x"}`) }

// KeyedBody returns a submission with this body. "" is no key.
func KeyedBody(key, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
	r.Header.Set("X-User-ID", "42")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return r
}
