package snippets_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	chicors "github.com/go-chi/cors"
	"github.com/rs/cors"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func forPagesOf(origins []string, locker *lock.Locker) http.Handler {
	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey)
	allow := cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodPost},
		AllowedHeaders: append(latch.RequestHeaders(), "Authorization", "Content-Type"),
		ExposedHeaders: append(latch.ResponseHeaders(), "Location"),
	})
	return allow.Handler(auth.Require(once(createOrder)))
}

const (
	pageA = "https://a.example"
	pageB = "https://b.example"
)

func fromPage(h http.Handler, origin, key string) *httptest.ResponseRecorder {
	return do(h, http.MethodPost, "/orders", tea, "Origin", origin, "Idempotency-Key", key)
}

func corsLibraries() map[string]func(http.Handler) http.Handler {
	origins, sent, read := []string{pageA, pageB}, latch.RequestHeaders(), latch.ResponseHeaders()
	return map[string]func(http.Handler) http.Handler{
		"rs/cors":     cors.New(cors.Options{AllowedOrigins: origins, AllowedHeaders: sent, ExposedHeaders: read, AllowCredentials: true}).Handler,
		"go-chi/cors": chicors.Handler(chicors.Options{AllowedOrigins: origins, AllowedMethods: []string{"POST"}, AllowedHeaders: sent, ExposedHeaders: read, AllowCredentials: true}),
	}
}

// TestCORSOutside: each answer, replays and refusals too, has the headers for its own page.
func TestCORSOutside(t *testing.T) {
	t.Parallel()
	for name, allow := range corsLibraries() {
		parallel.Run(t, name, func(t *testing.T) {
			h := allow(latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey)(createOrder))
			w := do(h, http.MethodOptions, "/orders", "", "Origin", pageA, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "idempotency-key")
			require.Less(t, w.Code, 300)
			require.Equal(t, "idempotency-key", strings.ToLower(w.Header().Get("Access-Control-Allow-Headers")))

			for _, step := range []struct {
				origin, key, mark string
				status            int
			}{{pageA, "k", "", 201}, {pageB, "k", "", 201}, {pageA, "k", "", 201}, {pageB, "", "key-missing", 400}} {
				w := fromPage(h, step.origin, step.key)
				require.Equal(t, step.status, w.Code)
				require.Equal(t, []string{step.origin}, w.Header()["Access-Control-Allow-Origin"])
				require.Equal(t, step.mark, w.Header().Get("Latch-Problem"))
				for _, exposed := range latch.ResponseHeaders() {
					require.Contains(t, w.Header().Get("Access-Control-Expose-Headers"), exposed)
				}
			}
		})
	}
}

// TestCORSInside, as behind a gateway: a replay has the headers of the first answer for a page of
// the same origin, and none of them for another page. Headers from outside stay.
func TestCORSInside(t *testing.T) {
	t.Parallel()
	for name, allow := range corsLibraries() {
		parallel.Run(t, name, func(t *testing.T) {
			h := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey)(allow(createOrder))
			first := fromPage(h, pageA, "k")
			require.Equal(t, []string{pageA}, first.Header()["Access-Control-Allow-Origin"])
			again := fromPage(h, pageA, "k")
			require.True(t, replayed(again))
			for name, values := range first.Header() {
				require.Equal(t, values, again.Header()[name], name)
			}
			other := fromPage(h, pageB, "k")
			require.True(t, replayed(other))
			for name := range other.Header() {
				require.NotContains(t, name, "Access-Control-")
			}

			require.Equal(t, []string{pageB}, fromPage(allow(h), pageB, "k").Header()["Access-Control-Allow-Origin"])
		})
	}
	anyone := func(next http.Handler) http.Handler { return cors.AllowAll().Handler(next) }
	h := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey)(anyone(createOrder))
	for _, origin := range []string{pageA, pageB} {
		require.Equal(t, "*", fromPage(h, origin, "k").Header().Get("Access-Control-Allow-Origin"))
	}
}

func TestPagesOfAnotherOrigin(t *testing.T) {
	t.Parallel()
	h := forPagesOf([]string{pageA}, newLocker(t, memstore.New()))
	require.Equal(t, pageA, fromPage(h, pageA, "k").Header().Get("Access-Control-Allow-Origin"))
	require.Empty(t, fromPage(h, pageB, "k").Header().Get("Access-Control-Allow-Origin"))
}
