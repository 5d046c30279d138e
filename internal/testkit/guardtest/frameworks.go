package guardtest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// InMemory returns a quiet Locker over a store of its own. Nothing closes it.
func InMemory(opts ...lock.Option) *lock.Locker {
	return lock.New(memstore.New(), append([]lock.Option{lock.WithLogger(Quiet)}, opts...)...)
}

// Once returns a guard of the keys of users.
func Once(opts ...latch.IdempotentOption) func(http.Handler) http.Handler {
	return latch.Idempotent(InMemory(), ByUser, keyfunc.IdempotencyKey, opts...)
}

// Send sends an order for tea, as JSON of user 42 with this key, to a path of h.
func Send(h http.Handler, path, key string) *httptest.ResponseRecorder {
	r := KeyedBody(key, `{"sku":"tea"}`)
	r.URL.Path = path
	r.Header.Set("Content-Type", "application/json")
	return Serve(h, r)
}

// RequireReplayed checks that w is an answer that was given before.
func RequireReplayed(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
}

// RequireReplay checks that again is the answer first, given again.
func RequireReplay(t *testing.T, first, again *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, first.Code, again.Code)
	require.Equal(t, first.Body.Bytes(), again.Body.Bytes())
	header := again.Result().Header.Clone()
	require.Equal(t, []string{"true"}, header["Idempotent-Replayed"])
	header.Del("Idempotent-Replayed")
	require.Equal(t, first.Result().Header, header)
}
