package snippets_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func sellerRoutes(locker *lock.Locker, createSession, completeSession http.Handler) http.Handler {
	mux := http.NewServeMux()

	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey, latch.ACP())
	mux.Handle("POST /checkout_sessions", auth.Require(once(createSession)))
	mux.Handle("POST /checkout_sessions/{id}/complete", auth.Require(once(completeSession)))

	return mux
}

func TestSeller(t *testing.T) {
	t.Parallel()
	sessions := 0
	create := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { sessions++; w.WriteHeader(http.StatusCreated) })
	h := sellerRoutes(newLocker(t, memstore.New()), create, http.NotFoundHandler())
	for _, body := range []string{`{"items":[{"id":"i","quantity":1}]}`, `{ "items": [{"quantity": 1.0, "id": "i"}] }`} {
		w := do(h, http.MethodPost, "/checkout_sessions", body, "Authorization", basic("agent"), "Idempotency-Key", "k")
		require.Equal(t, http.StatusCreated, w.Code, w.Body)
		require.Equal(t, "k", w.Header().Get("Idempotency-Key"))
	}
	require.Equal(t, 1, sessions)
}
