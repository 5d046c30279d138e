package snippets_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/walk"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(walk.Main(m).Run())
}

func onePerUser(l *lock.Locker) func(http.Handler) http.Handler {
	return latch.Lock(l, "user", keyfunc.Header("X-User-ID"))
}

func once(l *lock.Locker) func(http.Handler) http.Handler {
	return latch.Idempotent(l, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)
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

// requireReplays sends each path twice: one effect, equal answers.
func requireReplays(t *testing.T, h http.Handler, effects *int, want map[string]int) {
	t.Helper()
	for path, status := range want {
		*effects = 0
		first, again := send(h, path, "k"), send(h, path, "k")
		require.Equal(t, status, first.Code, path)
		require.Equal(t, 1, *effects, "%s: effects", path)
		require.Equal(t, first.Code, again.Code, path)
		require.Equal(t, first.Body.String(), again.Body.String(), path)
		header := again.Result().Header
		require.Equal(t, "true", header.Get("Idempotent-Replayed"), path)
		header.Del("Idempotent-Replayed")
		require.Equal(t, first.Result().Header, header, path)
	}
}
