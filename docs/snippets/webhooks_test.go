package snippets_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/pgstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func webhookRoutes(locker *lock.Locker) http.Handler {
	mux := http.NewServeMux()

	once := latch.Idempotent(
		locker.With(lock.WithKeep(7*24*time.Hour)),
		keyfunc.Global, keyfunc.Header("X-GitHub-Delivery"),
		latch.WithFinal(func(status int) bool { return status < 300 }),
		latch.WithFingerprint(keyfunc.Global),
	)

	mux.Handle("POST /hooks/github", verifySignature(once(http.HandlerFunc(takeDelivery))))
	return mux
}

func takeDelivery(w http.ResponseWriter, r *http.Request) {
	if err := enqueue(r.Context(), r.Body); err != nil {
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	// From here on no failure makes it run again, not even that of this process.
	if err := lock.Commit(r.Context()); err != nil {
		slog.WarnContext(r.Context(), "a redelivery may be taken again", "error", err)
	}
	w.WriteHeader(http.StatusNoContent)
}

func verifySignature(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Hub-Signature-256") != "right" {
			http.Error(w, "wrong signature", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

var queue = make(chan string, 1)

// enqueue puts a delivery into the queue, if that has room.
func enqueue(_ context.Context, body io.Reader) error {
	delivery, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	select {
	case queue <- string(delivery):
		return nil
	default:
		return errors.New("the queue is full")
	}
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	h := webhookRoutes(newLocker(t, memstore.New()))
	deliver := func(id, signature, body string) int {
		return do(h, http.MethodPost, "/hooks/github", body, "X-GitHub-Delivery", id, "X-Hub-Signature-256", signature).Code
	}
	require.Equal(t, 403, deliver("1", "wrong", "stolen"))
	require.Equal(t, 204, deliver("1", "right", "push"), "a delivery with a wrong signature does not use up the ID")
	require.Equal(t, 204, deliver("1", "right", "push, attempt 2"))
	require.Len(t, queue, 1)

	require.Equal(t, 503, deliver("2", "right", "push"))
	require.Equal(t, "push", <-queue)
	require.Equal(t, 204, deliver("2", "right", "push"), "a failure is not final")
	require.Len(t, queue, 1)
}

func workerOverPostgres(pool *pgxpool.Pool) *lock.Locker {
	return lock.New(pgstore.New(pool), lock.WithTransaction())
}

func insertOrderOf(ctx context.Context, customer string) error {
	tx, _ := pgstore.Tx(ctx) // begun by Once, and committed with the receipt
	_, err := tx.Exec(ctx, `INSERT INTO orders (customer) VALUES ($1)`, customer)
	return err
}

// With the receipt in the transaction of the rows, the work may fail after its effect, without lock.Commit. The twin writes
// its rows outside of the transaction. TestOnce of internal/history/campaign has faults and kills.
func TestRowsOfAQueue(t *testing.T) {
	t.Parallel()
	pool := shopDatabase(t)
	locker := workerOverPostgres(pool)
	closeAfter(t, locker)
	outside := func(ctx context.Context, customer string) error {
		_, err := pool.Exec(ctx, `INSERT INTO orders (customer) VALUES ($1)`, customer)
		return err
	}
	for name, tt := range map[string]struct {
		insert  func(ctx context.Context, customer string) error
		doubled bool
	}{"one transaction": {insertOrderOf, false}, "two": {outside, true}} {
		attempts := 0
		require.Eventually(t, func() bool { // delivered until it is acknowledged, also by a busy machine
			_, _, err := locker.Once(t.Context(), lock.Key("message", name), nil, func(ctx context.Context) ([]byte, error) {
				if err := tt.insert(ctx, name); err != nil {
					return nil, err
				}
				if attempts++; attempts == 1 {
					return nil, errors.New("the work failed after its effect")
				}
				return nil, nil
			})
			return err == nil
		}, 30*time.Second, 10*time.Millisecond)
		var rows int
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM orders WHERE customer = $1`, name).Scan(&rows))
		require.Positive(t, rows)
		require.Equal(t, tt.doubled, rows > 1, name)
	}
}
