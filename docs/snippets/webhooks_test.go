package snippets_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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

type queueKey struct{}

// enqueue puts a delivery into the queue of the context, if that has room.
func enqueue(ctx context.Context, body io.Reader) error {
	delivery, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	select {
	case ctx.Value(queueKey{}).(chan string) <- string(delivery):
		return nil
	default:
		return errors.New("the queue is full")
	}
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	h := webhookRoutes(newLocker(t, memstore.New()))
	queue := make(chan string, 1)
	deliver := func(id, signature, body string) int {
		r := httptest.NewRequest("POST", "/hooks/github", strings.NewReader(body))
		r = r.WithContext(context.WithValue(r.Context(), queueKey{}, queue))
		r.Header.Set("X-GitHub-Delivery", id)
		r.Header.Set("X-Hub-Signature-256", signature)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
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
	locker := lock.New(pgstore.New(pool), lock.WithTransaction())
	return locker
}

func insertOrderOf(ctx context.Context, customer string) error {
	tx, _ := pgstore.Tx(ctx) // begun by Once, and committed with the receipt
	_, err := tx.Exec(ctx, `INSERT INTO orders (customer) VALUES ($1)`, customer)
	return err
}

// With the receipt in the transaction of the rows, the work may fail after its effect, too,
// without lock.Commit. The twin has the receipts in the same database, and writes the rows
// outside of their transaction.
func TestRowsOfAQueue(t *testing.T) {
	t.Parallel()
	for name, together := range map[string]bool{"one transaction": true, "two": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := shopDatabase(t)
			locker, insert := workerOverPostgres(pool), insertOrderOf
			closeAfter(t, locker)
			if !together {
				locker = newLocker(t, locker.Store())
				insert = func(ctx context.Context, customer string) error {
					_, err := pool.Exec(ctx, `INSERT INTO orders (customer) VALUES ($1)`, customer)
					return err
				}
			}
			var deliveries sync.WaitGroup
			locker = locker.With(lock.WithWait(10 * time.Second))
			const messages = 12
			for i := range 2 * messages { // each is delivered twice, and again until it is acknowledged
				id := fmt.Sprintf("order-%d", i/2)
				deliveries.Go(func() {
					for attempt := 0; ; attempt++ {
						_, _, err := locker.Once(t.Context(), lock.Key("message", id), nil, func(ctx context.Context) ([]byte, error) {
							if err := insert(ctx, id); err != nil {
								return nil, err
							}
							if attempt == 0 && i/2 == 0 || attempt < 3 && rand.IntN(2) == 0 {
								return nil, errors.New("the work failed after its effect")
							}
							return nil, nil
						})
						if err == nil || attempt == 1000 {
							return
						}
						time.Sleep(10 * time.Millisecond)
					}
				})
			}
			deliveries.Wait()
			var rows, orders int
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT customer) FROM orders`).Scan(&rows, &orders))
			require.Equal(t, messages, orders)
			if together {
				require.Equal(t, messages, rows)
				return
			}
			require.Greater(t, rows, messages)
		})
	}
}
