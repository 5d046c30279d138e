package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// Requests that wait for a connection give up with their clients, and give their keys back.
func TestWaitForAConnectionEndsWithItsClient(t *testing.T) {
	t.Parallel()
	s := openShop(t, direct(t), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	l := s.locker(t, lock.WithDetached())
	var clients sync.WaitGroup
	for i := range 40 {
		clients.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, _, _ = l.Once(ctx, fmt.Sprint(i), nil, func(ctx context.Context) ([]byte, error) {
				if err := exec(ctx, "SELECT pg_sleep(0.3)"); err != nil {
					return nil, err
				}
				return order(fmt.Sprint(i))(ctx)
			})
		})
	}
	clients.Wait()
	require.LessOrEqual(t, len(s.orders(t)), 2, "that of the client which has had the connection")
	eventually(t, func() bool { return one[int](t, s.db, "SELECT count(*) FROM latch_entries WHERE receipt IS NULL") == 0 })
}

// countedShop is a shop with one connection for the work, whose exchanges with the server are counted.
func countedShop(t *testing.T) (s *shop, trips *atomic.Int64) {
	t.Helper()
	trips = new(atomic.Int64)
	proxy := sqlproxy.Postgres(t, pgtest.Shared(t).Addr(), func(*sqlproxy.Exchange) sqlproxy.Fault {
		trips.Add(1)
		return sqlproxy.Fault{}
	})
	return openShop(t, func(db string) string { return proxy.URL(db, "postgres") }, func(cfg *pgxpool.Config) { cfg.MaxConns = 1 }), trips
}

// An order is three exchanges: its claim, BEGIN with its first statement, its receipt with
// COMMIT. A replay is one; the first one after an order is one more, and so is the first order
// after a replay.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s, trips := countedShop(t)
	l := s.locker(t)
	once := func(key string) int64 {
		before := trips.Load()
		_, _, err := l.Once(t.Context(), key, nil, order(key))
		require.NoError(t, err)
		return trips.Load() - before
	}
	for i := range 70 { // statements are prepared, at first and whenever the number of claims has doubled
		once(fmt.Sprint(i))
	}
	least := []int64{9, 9, 9, 9, 9, 9}
	for n := range 8 { // until the connections have prepared their statements for it
		once("0") // a replay
		for i, key := range []string{"k", "l", "l", "l", "m", "n"} {
			least[i] = min(least[i], once(fmt.Sprint(key, n)))
		}
	}
	require.Equal(t, []int64{4, 3, 2, 1, 4, 3}, least, "claims after one that has met an entry look first")
}

// counters are read from the statistics of the table.
type counters struct{ claims, updates, hot, read int64 }

func (s *shop) counters(t *testing.T) (c counters) {
	t.Helper()
	err := s.db.QueryRow(t.Context(), "SELECT n_tup_ins, n_tup_upd, n_tup_hot_upd, seq_tup_read FROM pg_stat_user_tables WHERE relname = 'latch_entries'").Scan(&c.claims, &c.updates, &c.hot, &c.read)
	require.NoError(t, err)
	return c
}

// sell makes a number of orders, by a number of callers, and returns the number of refusals.
func (s *shop) sell(t *testing.T, l *lock.Locker, name string, work func(string) func(context.Context) ([]byte, error), callers, each int) (refused int64) {
	t.Helper()
	var n atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				key := fmt.Sprintf("%s/%d/%d", name, c, i)
				if _, _, err := l.Once(t.Context(), key, nil, work(key)); err != nil {
					n.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return n.Load()
}

// A receipt changes no column of an index. The first receipts of a process may.
func TestReceiptsAreHeapOnly(t *testing.T) {
	t.Parallel()
	s := openShop(t, direct(t))
	l := s.locker(t)
	const orders = 400
	require.Zero(t, s.sell(t, l, "hot", order, 4, orders/4))
	var c counters
	require.Eventually(t, func() bool { c = s.counters(t); return c.updates >= orders }, 20*time.Second, 50*time.Millisecond)
	t.Logf("%d of %d updates are heap-only", c.hot, c.updates)
	require.GreaterOrEqual(t, float64(c.hot), 0.95*float64(c.updates))
}

// Orders that conflict with nothing are not aborted for their receipts, nor for their notes.
func TestReceiptsConflictWithNothing(t *testing.T) {
	t.Parallel()
	s := openShop(t, direct(t), func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(pgx.Serializable)
		cfg.MaxConns = 8
	})
	l := s.locker(t)
	require.LessOrEqual(t, s.sell(t, l, "serializable", order, 8, 50), int64(2))
	charged := func(name string) func(context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) {
			receipt, err := order(name)(ctx)
			return receipt, errors.Join(err, lock.Commit(ctx))
		}
	}
	require.LessOrEqual(t, s.sell(t, l, "noted", charged, 8, 50), int64(2))
}

// A table that has grown since the statements were planned is not read as a whole.
func TestPlansOfATableThatHasGrown(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "fills a table")
	t.Parallel()
	s := openShop(t, direct(t))
	run(t, s.db, "ALTER TABLE latch_entries SET (autovacuum_enabled = off)")
	l := s.locker(t)
	require.Zero(t, s.sell(t, l, "tiny", order, 2, 5))
	run(t, s.db, "ANALYZE latch_entries")
	require.Zero(t, s.sell(t, l, "planned", order, 2, 40))
	_, err := s.db.Exec(t.Context(), `
		INSERT INTO latch_entries SELECT convert_to('other/' || n, 'UTF8'), '', 1, '', '', 0, now() + interval '1 day', 0, '', now() + interval '1 day'
		FROM generate_series(1, 60000) n`)
	require.NoError(t, err)
	require.Zero(t, s.sell(t, l, "grown", order, 2, 50))
	// The sessions for claims and for receipts report later.
	seen := func(orders int64) (c counters) {
		require.Eventually(t, func() bool {
			c = s.counters(t)
			return c.updates >= orders && c.claims >= orders+60000
		}, 20*time.Second, 50*time.Millisecond)
		return c
	}
	before := seen(190)
	began := time.Now()
	require.Zero(t, s.sell(t, l, "later", order, 2, 100))
	t.Logf("an order takes %v", time.Since(began)/100)
	after := seen(390)
	t.Logf("%d rows read by scans of the table", after.read-before.read)
	require.Less(t, after.read-before.read, int64(4*60000))
}

// The claim of a set is one exchange, however many keys it has, and a refusal two: the claim, and the
// reading of the entry in its way. Each release is one.
func TestRoundTripsOfASet(t *testing.T) {
	t.Parallel()
	s, trips := countedShop(t)
	// With the budget of a busy machine: a release that is given up goes on in the background.
	l, other := s.locker(t, lock.WithBudget(10*time.Second)), s.locker(t, lock.WithBudget(10*time.Second))
	keys := make([]string, 5)
	for i := range keys {
		keys[i] = lock.Key("item", fmt.Sprint(i))
	}
	set := func(l *lock.Locker, fn func(ctx context.Context) error) (int64, error) {
		before := trips.Load()
		err := l.DoAll(t.Context(), keys, fn)
		return trips.Load() - before, err
	}
	granted, refused := int64(99), int64(99)
	// Until the connections have prepared their statements. They do so again whenever the number of
	// claims has doubled.
	for n := 0; n < 100 && (granted > 1+5 || refused > 2); n++ {
		n, err := set(l, func(context.Context) error { return nil })
		require.NoError(t, err)
		granted = min(granted, n)
		_, err = set(other, func(context.Context) error {
			n, err := set(l, nil)
			require.ErrorIs(t, err, lock.ErrHeld)
			refused = min(refused, n)
			return nil
		})
		require.NoError(t, err)
	}
	require.EqualValues(t, 1+5, granted)
	require.EqualValues(t, 2, refused)
}
