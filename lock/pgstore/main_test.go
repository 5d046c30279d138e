package pgstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock/pgstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// newPool returns a pool of the database at url.
func newPool(tb testing.TB, url string, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	cfg := must.Get(pgxpool.ParseConfig(url))(tb)
	for _, c := range configure {
		c(cfg)
	}
	pool := must.Get(pgxpool.NewWithConfig(tb.Context(), cfg))(tb)
	tb.Cleanup(pool.Close)
	return pool
}

// newStore returns a store over pool, with its table.
func newStore(tb testing.TB, pool *pgxpool.Pool, opts ...pgstore.Option) *pgstore.Store {
	tb.Helper()
	s := pgstore.New(pool, opts...)
	tb.Cleanup(s.Close)
	migrate(tb, s)
	return s
}

func migrate(tb testing.TB, s *pgstore.Store) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	require.NoError(tb, s.Migrate(ctx))
}

// database returns the URL of a database of the test's own.
func database(tb testing.TB) string {
	tb.Helper()
	c := pgtest.Shared(tb)
	return c.URL(c.Database(tb), "postgres")
}

func openSQL(tb testing.TB, url string) *sql.DB {
	tb.Helper()
	pool := newPool(tb, url)
	db := stdlib.OpenDBFromPool(pool)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	return db
}

// run executes a statement, which must not fail.
func run(tb testing.TB, on interface {
	Exec(ctx context.Context, statement string, args ...any) (pgconn.CommandTag, error)
}, statement string, args ...any,
) {
	tb.Helper()
	must.Get(on.Exec(tb.Context(), statement, args...))(tb)
}

// one returns the one value of a query.
func one[T any](tb testing.TB, on interface {
	QueryRow(ctx context.Context, statement string, args ...any) pgx.Row
}, statement string, args ...any,
) (value T) {
	tb.Helper()
	if err := on.QueryRow(tb.Context(), statement, args...).Scan(&value); err != nil {
		tb.Error(err) // it may be on another goroutine
	}
	return value
}

// sessions returns the number of sessions in the database of a connection for which a condition holds.
func sessions(tb testing.TB, on *pgx.Conn, condition string) int {
	tb.Helper()
	return one[int](tb, on, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "+condition)
}

// eventually waits until a condition holds.
func eventually(tb testing.TB, condition func() bool) {
	tb.Helper()
	require.Eventually(tb, condition, 20*time.Second, 5*time.Millisecond)
}
