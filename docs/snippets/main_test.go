package snippets_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/httplatch/httplatch/internal/testkit/walk"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(walk.Main(m).Run())
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
