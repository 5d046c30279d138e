package pgstore_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// hostile are names, and keys, that SQL would not read as one name.
var hostile = []string{
	`o'brien`,
	`it''s`,
	`say "x"`,
	`x"; DROP TABLE orders; --`,
	`x'; DROP TABLE orders; --`,
	`x'::regclass); DROP TABLE orders; --`,
	`back\slash\'`,
	`E'\'`,
	`$1`,
	`$$`,
	`/*`,
	`?`,
	"two\nlines",
	`Mixed Case`,
	`sélect`,
	`latch_entries_fence`,
	`latch_entries'`,
	strings.Repeat("n", 48),
}

// Each name is one name, and has its own table, index and sequence.
func TestTablesOfAnyName(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			c := pgtest.Shared(t)
			db := c.Database(t)
			pool := newPool(t, c.URL(db, "postgres"), func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode })
			c.Exec(t, db, `CREATE TABLE orders (name text); CREATE SCHEMA shop; CREATE SCHEMA "a""b'c;"`)
			for _, name := range append([]string{"shop.entries", `a"b'c;.it's`, `shop.latch_entries`}, hostile...) {
				require.EqualValues(t, 1, sqlshop.UseTable(t, newStore(t, pool, pgstore.WithTable(name)), name), "%s has a sequence of its own", name)
			}
			var tables int
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`).Scan(&tables))
			require.Equal(t, 1+3+len(hostile), tables, "one for each name, and the orders")
		})
	}
}

func TestNamesThatWithTableRefuses(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "shop.", ".entries", "a.b.c", "a\x00b", "not utf-8 \xff", strings.Repeat("n", 49), strings.Repeat("n", 63), "shop." + strings.Repeat("n", 64)} {
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
