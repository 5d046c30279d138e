package snippets_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

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
