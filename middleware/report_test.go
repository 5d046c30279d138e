package middleware_test

import (
	"context"
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

// Observers are notified of requests that never reach the Locker, and why.
func TestRequestsBeforeTheLockerAreReported(t *testing.T) {
	t.Parallel()
	teapot := func(*http.Request) (string, error) {
		return "", &keyfunc.Error{Status: http.StatusTeapot, Err: keyfunc.ErrMissing}
	}
	none := func(context.Context) string { return "" }
	byKey := keyfunc.IdempotencyKey
	for name, tt := range map[string]struct {
		guard func(l *lock.Locker) func(http.Handler) http.Handler
		key   string
		once  bool
		class string // "": skipped
	}{
		"lock, no key": {func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Lock(l, "user", byUser) }, "", false, "key_missing"},
		"lock, none needed": {func(l *lock.Locker) func(http.Handler) http.Handler {
			return latch.Lock(l, "user", keyfunc.Optional(byUser))
		}, "", false, ""},
		"lock, no user": {func(l *lock.Locker) func(http.Handler) http.Handler {
			return latch.Lock(l, "user", keyfunc.Context(none))
		}, "", false, "unauthenticated"},
		"lock, own status": {func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Lock(l, "user", teapot) }, "", false, "refused"},
		"once, no key": {func(l *lock.Locker) func(http.Handler) http.Handler {
			return latch.Idempotent(l, keyfunc.Global, byKey)
		}, "", true, "key_missing"},
		"once, malformed": {func(l *lock.Locker) func(http.Handler) http.Handler {
			return latch.Idempotent(l, keyfunc.Global, byKey)
		}, `"`, true, "key_invalid"},
		"once, body too large": {func(l *lock.Locker) func(http.Handler) http.Handler {
			return latch.Idempotent(l, keyfunc.Global, byKey, latch.WithBodyLimits(1, 1))
		}, "k", true, "body_too_large"},
		"once, none needed": {func(l *lock.Locker) func(http.Handler) http.Handler {
			return latch.Idempotent(l, keyfunc.Global, keyfunc.Optional(byKey))
		}, "", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []lock.Event
			l := newLocker(t, memstore.New(), lock.WithLogger(quiet), lock.WithObserver(func(_ context.Context, e lock.Event) { seen = append(seen, e) }))
			r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("body"))
			if tt.key != "" {
				r.Header.Set("Idempotency-Key", tt.key)
			}
			serve(tt.guard(l)(http.HandlerFunc(created)), r)
			require.Len(t, seen, 1)
			require.Equal(t, tt.once, seen[0].Once)
			require.NotEmpty(t, seen[0].Name)
			require.Empty(t, seen[0].Key)
			if tt.class == "" {
				require.Equal(t, lock.EventSkipped, seen[0].Kind)
				return
			}
			require.Equal(t, lock.EventRejected, seen[0].Kind)
			var classified interface{ Class() string }
			require.ErrorAs(t, seen[0].Err, &classified)
			require.Equal(t, tt.class, classified.Class())
		})
	}
}
