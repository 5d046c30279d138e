package suite_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/shop"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
)

// slowFlushes make the server wait for a millisecond before it flushes a commit, together with
// the commits of that time, as a disk over a network does.
const slowFlushes = "&commit_delay=1000&commit_siblings=0"

const someBuyers = 8

// opened is a contender, its shop, and the same on a slower disk.
type opened struct {
	shop.Contender

	fast, slow shop.Shop
	url        string
}

// BenchmarkTransactions measures orders that are inserted exactly once, and their answers
// replayed, beside a transaction that knows nothing of that.
func BenchmarkTransactions(b *testing.B) {
	replayKeys := size(64, 2) // of each caller
	srv := startPostgres(b)
	meter := meterPostgres(b, srv.DatabaseURL(b))
	kept := newKeys(replayKeys * buyersPool)
	var all []opened
	for _, c := range shop.All() {
		o := opened{Contender: c, url: srv.DatabaseURL(b)}
		o.fast = openShop(b, c, shop.Target{URL: o.url, Pool: buyersPool})
		o.slow = openShop(b, c, shop.Target{URL: srv.DatabaseURL(b) + slowFlushes, Pool: buyersPool})
		stock(b, o.fast, kept)
		stock(b, o.slow, kept)
		all = append(all, o)
	}
	turns := func(callers int, op func(o opened) load.Op) []contender {
		return each(all, func(o opened) string { return o.Name }, func(b *testing.B, o opened) { measureShop(b, meter, callers, op(o)) })
	}
	for round := range *rounds {
		for _, callers := range []int{1, 8, 32} {
			inTurns(b, round, "order, "+callersCase(callers), turns(callers, func(o opened) load.Op { return ordering(o.fast) }))
			inTurns(b, round, "order, a flush takes 1 ms more, "+callersCase(callers), turns(callers, func(o opened) load.Op { return ordering(o.slow) }))
			inTurns(b, round, "replay, "+callersCase(callers), turns(callers, func(o opened) load.Op {
				return func(ctx context.Context, caller, n int) error {
					return o.fast.Replay(ctx, kept[caller*replayKeys+n%replayKeys])
				}
			}))
		}
		inTurns(b, round, "INSERTs under serializable, 8 callers", each(shop.All(), func(c shop.Contender) string { return c.Name },
			func(b *testing.B, c shop.Contender) { measureSerializable(b, srv, c) }))
		measureGrown(b, round, srv)
	}
	measure(b, 0, "all updates", shop.Ours, func(b *testing.B) { reportHeapOnly(b, all[0].url) })
}

// measureSerializable measures how many orders are aborted that conflict with nothing.
func measureSerializable(b *testing.B, srv *pgtest.Cluster, c shop.Contender) {
	b.Helper()
	s := openShop(b, c, shop.Target{URL: srv.DatabaseURL(b) + "&default_transaction_isolation=serializable", Pool: someBuyers})
	r, err := load.Steady(b.Context(), someBuyers, *window/5, 3**window, ordering(s), func() {})
	require.NoError(b, err)
	reportTimes(b, r)
}

// grow makes many rows of receipts, as other processes would.
const grow = `INSERT INTO latch_entries SELECT convert_to('other/' || n, 'UTF8'), '', 1, '', '', 0, now() + interval '1 day', 0, '', now() + interval '1 day'
	FROM generate_series(1, 60000) n`

// measureGrown measures orders beside 60,000 rows whose statements were planned beside 60, and
// again when the server knows how many there are.
func measureGrown(b *testing.B, round int, srv *pgtest.Cluster) {
	b.Helper()
	url := srv.DatabaseURL(b)
	s, err := shop.All()[0].Open(b.Context(), shop.Target{URL: url, Pool: someBuyers})
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close(b.Context())) }() // the server has no connections for all rounds
	conn, err := pgx.Connect(b.Context(), url)
	require.NoError(b, err)
	defer func() { _ = conn.Close(b.Context()) }()
	times(b, 1, 10, ordering(s))
	execute(b, conn, `ALTER TABLE latch_entries SET (autovacuum_enabled = off)`)
	execute(b, conn, `ANALYZE latch_entries`)
	times(b, 1, 50, ordering(s)) // which are planned by what ANALYZE has seen
	execute(b, conn, grow)
	for _, who := range []string{"before ANALYZE", "after ANALYZE"} {
		_, err := load.Closed(b.Context(), someBuyers, *window, ordering(s)) // connections prepare their statements
		require.NoError(b, err)
		measure(b, round, "order, 8 callers, 60,000 rows after 60", who, func(b *testing.B) {
			r, err := load.Closed(b.Context(), someBuyers, 2**window, ordering(s))
			require.NoError(b, err)
			reportTimes(b, r)
		})
		execute(b, conn, `ANALYZE latch_entries`)
	}
}

// reportHeapOnly reports which part of the table's updates changed no index.
func reportHeapOnly(b *testing.B, url string) {
	b.Helper()
	var percent float64
	err := connect(b, url).QueryRow(b.Context(),
		`SELECT 100.0 * n_tup_hot_upd / greatest(n_tup_upd, 1) FROM pg_stat_user_tables WHERE relname = 'latch_entries'`).Scan(&percent)
	require.NoError(b, err)
	b.ReportMetric(percent, report.HeapOnly)
}

// BenchmarkReceipts measures how much room so many kept receipts take, and the cost of a
// claim, an order and a replay beside them.
func BenchmarkReceipts(b *testing.B) {
	srv, ours := startPostgres(b), shop.All()[0]
	meter := meterPostgres(b, srv.DatabaseURL(b))
	contenders := map[string][]contender{}
	for _, receipts := range []int{1000, 1_000_000} {
		n, url, kase := size(receipts, 100), srv.DatabaseURL(b), fmt.Sprintf("%d receipts, 1 caller", receipts)
		s := openShop(b, ours, shop.Target{URL: url, Pool: buyersPool})
		claimer, ok := s.(shop.Claimer)
		require.True(b, ok)
		kept := leave(b, ours, url, n)
		measure(b, 0, kase, "their room", func(b *testing.B) { reportRoom(b, connect(b, url), n) })
		for who, op := range map[string]func(ctx context.Context, i int) error{
			"claim":  func(ctx context.Context, _ int) error { return claimer.Claim(ctx, newKey()) },
			"order":  func(ctx context.Context, _ int) error { return s.Order(ctx, newKey()) },
			"replay": func(ctx context.Context, i int) error { return s.Replay(ctx, kept[i*7919%n]) },
		} {
			contenders[kase] = append(contenders[kase], contender{who, func(b *testing.B) {
				measureShop(b, meter, 1, func(ctx context.Context, _, i int) error { return op(ctx, i) })
			}})
		}
	}
	for round := range *rounds {
		for kase, all := range contenders {
			inTurns(b, round, kase, all)
		}
	}
}

// leave has n orders made by a shop of its own, which does not wait for the disk, and returns
// their keys.
func leave(b *testing.B, c shop.Contender, url string, n int) []string {
	b.Helper()
	const fillers, tries = 8, 5
	s := openShop(b, c, shop.Target{URL: url + "&synchronous_commit=off", Pool: buyersPool})
	kept := newKeys(n)
	times(b, fillers, n, func(ctx context.Context, caller, i int) (err error) {
		for range tries { // a busy machine may not answer in time
			if err = s.Keep(ctx, kept[i*fillers+caller]); err == nil {
				break
			}
		}
		return err
	})
	return kept
}

// reportRoom reports the sizes of the table and its indexes, dead rows included.
func reportRoom(b *testing.B, conn *pgx.Conn, n int) {
	b.Helper()
	var table, keys, sweep, rows float64
	err := conn.QueryRow(b.Context(), `SELECT pg_table_size('latch_entries')::float8, pg_relation_size('latch_entries_pkey')::float8,
		pg_relation_size('latch_entries_sweep_at')::float8, (SELECT count(*) FROM latch_entries)::float8`).Scan(&table, &keys, &sweep, &rows)
	require.NoError(b, err)
	require.GreaterOrEqual(b, rows, float64(n))
	b.ReportMetric(table/rows, report.TableBytes)
	b.ReportMetric(keys/rows, report.IndexBytes)
	b.ReportMetric(sweep/rows, report.SweepBytes)
}
