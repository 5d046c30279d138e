package snippets_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/walk"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/middleware/policy"
)

var createOrder, payOrder http.HandlerFunc = answer(201), answer(200)

func answer(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

func mount(r chi.Router, file io.Reader, locker *lock.Locker) error {
	guards, err := policy.Load(file, locker, map[string]keyfunc.Func{
		"user":            keyfunc.Context(auth.UserID),
		"order":           keyfunc.PathValue("id"),
		"idempotency-key": keyfunc.IdempotencyKey,
	})
	if err != nil {
		return err
	}
	r.Use(auth.Require)
	r.With(guards.Get("order-once"), guards.Get("order-lock")).Post("/orders", createOrder)
	r.With(guards.Get("pay-once"), guards.Get("pay-lock")).Post("/orders/{id}/pay", payOrder)
	return guards.Check()
}

// TestPoliciesOfThePage: its file loads and does what it says, and its mistakes
// are those of a file with mistakes.
func TestPoliciesOfThePage(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, memstore.New())
	for _, b := range walk.Blocks(t, "../policies.md") {
		r := chi.NewRouter()
		switch b.Language {
		case "json":
			require.NoError(t, mount(r, strings.NewReader(b.Text), locker))
			require.Equal(t, 201, ask(r, "POST", "/orders", "k").Code)
			require.Equal(t, "true", ask(r, "POST", "/orders", "k").Header().Get("Idempotent-Replayed"))
			require.Equal(t, 429, ask(r, "POST", "/orders", "another").Code)
			require.Equal(t, 200, ask(r, "POST", "/orders/7/pay", "").Code)
			require.Equal(t, "true", ask(r, "POST", "/orders/7/pay", "").Header().Get("Idempotent-Replayed"))
		case "text":
			mistakes, err := os.Open("../../middleware/policy/testdata/mistakes.json")
			require.NoError(t, err)
			defer mistakes.Close()
			require.ErrorContains(t, mount(r, mistakes, locker), b.Text)
		}
	}
}
