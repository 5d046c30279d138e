package snippets_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

type row struct{ written *int }

func write(_ context.Context, r row) error { *r.written++; return nil }

func report(ctx context.Context, rows []row) error {
	for _, r := range rows {
		if ctx.Err() != nil {
			return context.Cause(ctx) // the lease is over: another holder may be writing
		}
		if err := write(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

var errOvertaken = errors.New("orders: overtaken")

func setStatus(ctx context.Context, db *sql.DB, id, status string) error {
	lease, _ := lock.FromContext(ctx)
	fence, ok := lease.Fence()
	if !ok {
		return errors.New("orders: no fence: the route needs a Lock, and its Locker WithFencing")
	}
	result, err := db.ExecContext(ctx,
		`UPDATE orders SET status = $1, fence = $2 WHERE id = $3 AND fence <= $2`, status, fence, id)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(errOvertaken, err)
	}
	return nil
}

// table is a driver for a database of one order, which obeys the statement of
// setStatus.
type table struct{ fence int64 }

func (d *table) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *table) Driver() driver.Driver                        { return nil }
func (d *table) Prepare(string) (driver.Stmt, error)          { return d, nil }
func (d *table) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }
func (d *table) Close() error                                 { return nil }
func (d *table) NumInput() int                                { return 3 }
func (d *table) Query([]driver.Value) (driver.Rows, error)    { return nil, driver.ErrSkip }

func (d *table) Exec(args []driver.Value) (driver.Result, error) {
	if fence := args[1].(int64); d.fence <= fence {
		d.fence = fence
		return driver.RowsAffected(1), nil
	}
	return driver.RowsAffected(0), nil
}

// TestFence: a holder that overslept its lease is refused by the table.
func TestFence(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(&table{})
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	store := memstore.New()
	paused := newLocker(t, store, lock.WithFencing(), lock.WithLease(time.Second), lock.WithMaxHold(time.Second))
	other := newLocker(t, store, lock.WithFencing())
	key := lock.Key("order", "7")
	err := paused.Do(t.Context(), key, func(held context.Context) error {
		<-held.Done()
		require.ErrorIs(t, report(held, []row{{new(int)}}), lock.ErrLost)
		require.Eventually(t, func() bool {
			return other.Do(t.Context(), key, func(ctx context.Context) error { return setStatus(ctx, db, "7", "paid") }) == nil
		}, 30*time.Second, 10*time.Millisecond)
		// It does not look, and goes on.
		return setStatus(context.WithoutCancel(held), db, "7", "cancelled")
	})
	require.ErrorIs(t, err, errOvertaken)
	require.ErrorIs(t, err, lock.ErrLost)
	require.ErrorContains(t, setStatus(t.Context(), db, "7", "paid"), "no fence")
}
