package pgstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

// A migration of a complete table does not wait for the lock that VACUUM holds: claims would queue up
// behind it. The twin has the DDL run as it stands in Schema, which locks the table before it looks
// whether the index is there.
func TestMigrateTakesNoLockOnACompleteTable(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	db := c.Database(t)
	vacuum, err := pgxtest.Connect(t, c.URL(db, "")).Begin(t.Context())
	require.NoError(t, err)
	for table, locked := range map[string]string{"latch_entries": "latch_entries", `public.o'brien "x"`: `"o'brien ""x"""`} {
		s := newStore(t, newPool(t, c.URL(db, "postgres")), pgstore.WithTable(table))
		run(t, vacuum, "LOCK TABLE "+locked+" IN SHARE UPDATE EXCLUSIVE MODE")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, s.Migrate(ctx))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, must.Err(pgxtest.Connect(t, c.URL(db, "")).Exec(ctx, pgstore.Schema)), context.DeadlineExceeded)
	require.NoError(t, vacuum.Rollback(t.Context()))
}

// Migrate makes missing objects, and does not change existing ones.
func TestMigrateMakesWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"all":                                    "DROP TABLE latch_entries; DROP SEQUENCE latch_entries_fence",
		"index":                                  "DROP INDEX latch_entries_sweep_at",
		"sequence":                               "DROP SEQUENCE latch_entries_fence",
		"an index of another name":               "ALTER INDEX latch_entries_sweep_at RENAME TO mine",
		"an index of this name on another table": "DROP INDEX latch_entries_sweep_at; CREATE SCHEMA other; CREATE TABLE other.t (a int); CREATE INDEX latch_entries_sweep_at ON other.t (a)",
		"a table in a schema that is not searched": "CREATE SCHEMA other; ALTER TABLE latch_entries SET SCHEMA other",
	} {
		parallel.Run(t, name, func(t *testing.T) {
			c := pgtest.Shared(t)
			db := c.Database(t)
			s := newStore(t, newPool(t, c.URL(db, "postgres")))
			c.Exec(t, db, statement)
			migrate(t, s)
			require.NoError(t, s.Check(t.Context()))
			require.Equal(t, 1, one[int](t, pgxtest.Connect(t, c.URL(db, "")), `
				SELECT count(*) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
				WHERE i.indrelid = 'latch_entries'::regclass AND a.attname = 'sweep_at'`))
		})
	}
}

// A role that may use the table, and make none, opens a store whose table is there.
func TestOpenWithoutTheRightToMigrate(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.grant(t, grantsOfThePage(t, s.role)...)
	url := s.cluster.URL(s.db, s.role)
	store, err := pgstore.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	must.Entry(t)(store.Claim(t.Context(), "k", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}))
	_, err = pgstore.Open(t.Context(), url, pgstore.WithTable("another"))
	require.ErrorIs(t, err, lock.ErrDenied)
	require.ErrorContains(t, err, "permission denied for schema public")
}

// hostile are names, and keys, that SQL would not read as one name.
var hostile = []string{
	`o'brien`, `say "x"`, `x"; DROP TABLE orders; --`, `x'::regclass); DROP TABLE orders; --`, `back\slash\'`, `$1`, `$$`, "two\nlines", `Mixed Case`,
	`latch_entries_fence`, strings.Repeat("n", 48),
}

// Each name is one name, and has its own table, index and sequence.
func TestTablesOfAnyName(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		parallel.Run(t, mode.String(), func(t *testing.T) {
			c := pgtest.Shared(t)
			db := c.Database(t)
			pool := newPool(t, c.URL(db, "postgres"), func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode })
			c.Exec(t, db, `CREATE TABLE orders (name text); CREATE SCHEMA shop; CREATE SCHEMA "a""b'c;"`)
			for _, name := range append([]string{"shop.entries", `a"b'c;.it's`, `shop.latch_entries`}, hostile...) {
				require.EqualValues(t, 1, sqlshop.UseTable(t, newStore(t, pool, pgstore.WithTable(name)), name), "%s has a sequence of its own", name)
			}
			tables := one[int](t, pool, `SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`)
			require.Equal(t, 1+3+len(hostile), tables, "one for each name, and the orders")
		})
	}
}

func TestNamesThatWithTableRefuses(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "shop.", ".entries", "a.b.c", "a\x00b", "not utf-8 \xff", strings.Repeat("n", 49), "shop." + strings.Repeat("n", 49)} {
		require.Panics(t, func() { pgstore.WithTable(name) }, "%q", name)
	}
}

// Many processes may migrate at once, and again, while others use the table.
func TestMigrateByManyAtOnce(t *testing.T) {
	t.Parallel()
	url := database(t)
	sqlshop.TestMigrations(t, func(t *testing.T) sqlshop.Store {
		t.Helper()
		s := pgstore.New(newPool(t, url))
		t.Cleanup(s.Close)
		return s
	})
}

func TestClosedStore(t *testing.T) {
	t.Parallel()
	sqlshop.TestClosed(t, newStore(t, newPool(t, database(t))))
}
