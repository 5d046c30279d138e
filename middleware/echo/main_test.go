package latchecho_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type guard = func(http.Handler) http.Handler

var byUser = keyfunc.Header("X-User-ID")

func newLocker(opts ...lock.Option) *lock.Locker {
	return lock.New(memstore.New(), append([]lock.Option{lock.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
}

func once(opts ...latch.IdempotentOption) guard {
	return latch.Idempotent(newLocker(), byUser, keyfunc.IdempotencyKey, opts...)
}

func send(h http.Handler, path, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{"sku":"tea"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-User-ID", "42")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func requireReplayed(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
}
