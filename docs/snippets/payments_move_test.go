package snippets_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func bothLayers(locker *lock.Locker, scope keyfunc.Func, oldLayer func(http.Handler) http.Handler, createPayment http.Handler) http.Handler {
	mux := http.NewServeMux()

	once := latch.Idempotent(locker, scope, keyfunc.Optional(keyfunc.IdempotencyKey), latch.Stripe(), latch.WithFinal(isFinal))

	mux.Handle("POST /v1/payments", api.Authenticate(once(oldLayer(recovered(createPayment)))))
	return mux
}

// isFinal says which answers are kept. The 409 of the old layer means "not yet". latch.Stripe does
// not keep the other statuses below.
func isFinal(status int) bool {
	switch status {
	case http.StatusConflict:
		return false
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return false
	}
	return true
}

// keysInATable is the layer that a service has had before: a row for each key, made before
// the handler runs, and completed with its answer.
func keysInATable(pool *pgxpool.Pool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, key := r.Context(), api.Account(r.Context())+"/"+r.Header.Get("Idempotency-Key")
			made, err := pool.Exec(ctx, `INSERT INTO idempotency_keys (key) VALUES ($1) ON CONFLICT DO NOTHING`, key)
			var status *int
			var body []byte
			if err == nil {
				err = pool.QueryRow(ctx, `SELECT status, body FROM idempotency_keys WHERE key = $1`, key).Scan(&status, &body)
			}
			switch {
			case err != nil:
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			case made.RowsAffected() == 0 && status == nil:
				http.Error(w, "in progress", http.StatusConflict)
			case made.RowsAffected() == 0:
				w.WriteHeader(*status)
				_, _ = w.Write(body)
			default:
				answer := httptest.NewRecorder()
				next.ServeHTTP(answer, r)
				_, _ = pool.Exec(ctx, `UPDATE idempotency_keys SET status = $2, body = $3 WHERE key = $1`, key, answer.Code, answer.Body.Bytes())
				w.WriteHeader(answer.Code)
				_, _ = w.Write(answer.Body.Bytes())
			}
		})
	}
}

// TestMoveFromATable: processes with the old layer alone, and with the guard outside it,
// serve the same keys, as in a rolling deployment; then the old layer is removed.
func TestMoveFromATable(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgtest.DatabaseURL(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), `CREATE TABLE idempotency_keys (key text PRIMARY KEY, status int, body bytea)`)
	require.NoError(t, err)

	runs := 0
	createPayment := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { runs++; w.WriteHeader(http.StatusCreated) })
	scope := keyfunc.Join(keyfunc.Context(api.Account), keyfunc.Context(api.Mode))
	old := keysInATable(pool)
	locker := newLocker(t, memstore.New())
	before := api.Authenticate(old(createPayment))
	both := bothLayers(locker, scope, old, createPayment)
	after := paymentRoutes(locker, createPayment)

	send := func(h http.Handler, key string, status int, replayed string) {
		t.Helper()
		w := pay(h, "sk_live_acme", key, "{}")
		require.Equal(t, status, w.Code, w.Body)
		require.Equal(t, replayed, w.Header().Get("Idempotent-Replayed"))
	}
	send(before, "a", 201, "")
	send(both, "a", 201, "")     // by the table
	send(both, "a", 201, "true") // by the guard
	send(both, "b", 201, "")
	send(before, "b", 201, "")
	require.Equal(t, 2, runs)

	_, err = pool.Exec(t.Context(), `INSERT INTO idempotency_keys (key) VALUES ('acme/c')`) // a process with the old layer runs it
	require.NoError(t, err)
	send(both, "c", 409, "")
	kept := api.Authenticate(latch.Idempotent(newLocker(t, memstore.New()), scope, keyfunc.IdempotencyKey)(old(createPayment)))
	send(kept, "c", 409, "")
	_, err = pool.Exec(t.Context(), `UPDATE idempotency_keys SET status = 201, body = '' WHERE key = 'acme/c'`)
	require.NoError(t, err)
	send(both, "c", 201, "")
	send(kept, "c", 409, "true") // what WithFinal is for

	_, err = pool.Exec(t.Context(), `DROP TABLE idempotency_keys`)
	require.NoError(t, err)
	for _, key := range []string{"a", "b", "c"} {
		send(after, key, 201, "true")
	}
	require.Equal(t, 2, runs)
}
