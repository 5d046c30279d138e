package pgstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock/pgstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// newPool returns a pool of the database at url.
func newPool(tb testing.TB, url string, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(tb, err)
	for _, c := range configure {
		c(cfg)
	}
	pool, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	require.NoError(tb, err)
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
	_, err := on.Exec(tb.Context(), statement, args...)
	require.NoError(tb, err)
}
