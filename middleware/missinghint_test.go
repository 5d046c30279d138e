package middleware_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestHintNamesTheMissingKey: the log says which key is missing and the cure for that one,
// once, and blames no other function.
func TestHintNamesTheMissingKey(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		key  keyfunc.Func
		want string
	}{
		"PathValue":      {keyfunc.PathValue("id"), "path value id is missing; mount the guard on a route that has it, not around the router"},
		"Context":        {keyfunc.Context(func(context.Context) string { return "" }), "context value is missing; authenticate, and mount the authentication outside"},
		"JSON":           {keyfunc.JSON("/order/id"), "JSON value /order/id is missing; send it in the body"},
		"Form":           {keyfunc.Form("once"), "form field once is missing; send it in the body, as a form"},
		"Query":          {keyfunc.Query("id"), "query parameter id is missing; send it in the URL"},
		"Header":         {keyfunc.Header("X-User-ID"), "header X-User-ID is missing; let the gateway set it"},
		"IdempotencyKey": {keyfunc.IdempotencyKey, "header Idempotency-Key is missing; send one that is new"},
		"a join":         {keyfunc.Join(keyfunc.Global, keyfunc.Hash(keyfunc.JSON("/id"))), "JSON value /id is missing; send it in the body"},
		"their own":      {func(*http.Request) (string, error) { return "", nil }, "keyfunc: the request has no key"},
	} {
		for kind, guard := range map[string]func(l *lock.Locker) func(http.Handler) http.Handler{
			"lock": func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Lock(l, "order", tt.key) },
			"idempotent": func(l *lock.Locker) func(http.Handler) http.Handler {
				return latch.Idempotent(l, keyfunc.Global, tt.key)
			},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				var logged bytes.Buffer
				l := newLocker(t, memstore.New(), lock.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
				h := guard(l)(http.HandlerFunc(created))
				for range 2 {
					r := httptest.NewRequest(http.MethodPost, "/orders/7", strings.NewReader(`{"order":{}}`))
					r.Header.Set("Content-Type", "application/json")
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					require.Contains(t, []int{400, 401}, w.Code)
				}
				require.Equal(t, 1, strings.Count(logged.String(), "\n"), "logged once: %s", &logged)
				require.Contains(t, logged.String(), "level=WARN")
				require.Contains(t, logged.String(), tt.want)
				for _, other := range []string{"PathValue", "Context", "router", "authentication"} {
					if !strings.Contains(tt.want, other) {
						require.NotContains(t, logged.String(), other)
					}
				}
			})
		}
	}
}
