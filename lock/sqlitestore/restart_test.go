package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// A deployment in the middle of a thousand keyed orders forgets no key: the receipts of
// transactions, in the database, and all others, in the file of the claims.
func TestRestartInTheMiddleOfAThousandOrders(t *testing.T) {
	t.Parallel()
	const callers = 16
	for name, tt := range map[string]struct {
		orders int64
		opts   []lock.Option
	}{
		"in transactions":     {1000, []lock.Option{lock.WithTransaction()}},
		"with receipts apart": {300, nil}, // which wait for the disk
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orders := tt.orders
			path := file(t)
			open(t, path).Close()
			var ran, replays atomic.Int64
			// run takes each order until it is answered, or the process is to be restarted.
			run := func(stopAt int64) {
				db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(OFF)") // the process ends, and not the machine
				require.NoError(t, err)
				store := sqlitestore.New(db)
				l := lock.New(store, append([]lock.Option{lock.WithLogger(sqlshop.Quiet), lock.WithBudget(10 * time.Second)}, tt.opts...)...)
				var next atomic.Int64
				var stopped atomic.Bool
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for i := next.Add(1); i <= orders && !stopped.Load(); i = next.Add(1) {
							key := fmt.Sprint(i)
							receipt, replayed, err := l.Once(context.WithoutCancel(t.Context()), key, nil, func(context.Context) ([]byte, error) {
								if ran.Add(1) == stopAt {
									stopped.Store(true)
								}
								return []byte("receipt of " + key), nil
							})
							if err != nil || string(receipt) != "receipt of "+key {
								t.Errorf("%s: %s, %v", key, receipt, err)
							}
							if replayed {
								replays.Add(1)
							}
						}
					})
				}
				all.Wait()
				require.NoError(t, l.Close(t.Context()))
				store.Close()
				require.NoError(t, db.Close())
			}
			run(orders / 2)
			require.Less(t, ran.Load(), orders)
			before := ran.Load()
			run(0)
			require.Equal(t, orders, ran.Load(), "each ran once")
			require.Equal(t, before, replays.Load())
			replays.Store(0)
			run(0)
			require.Equal(t, orders, replays.Load())
		})
	}
}
