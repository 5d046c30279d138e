package shop_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/shop"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { os.Exit(mysqltest.Main(pgtest.Main(m)).Run()) }

// databases are an empty one of each kind, and the name of its driver.
var databases = map[string]struct {
	driver string
	url    func(t *testing.T) string
}{
	shop.PostgreSQL: {"pgx", func(t *testing.T) string { t.Helper(); return pgtest.DatabaseURL(t) }},
	shop.MariaDB:    {"mysql", func(t *testing.T) string { t.Helper(); return mysqltest.Shared(t).DatabaseDSN(t) }},
	shop.SQLite:     {"sqlite", func(t *testing.T) string { t.Helper(); return "file:" + filepath.Join(t.TempDir(), "shop.db") }},
}

// A contender that is wired wrongly is no comparison: every one inserts an order for a new
// key, and none for a replay.
func TestEveryShopInsertsOnce(t *testing.T) {
	for name, database := range databases {
		for _, c := range shop.All(name) {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				url := database.url(t)
				s, err := c.Open(t.Context(), shop.Target{URL: url, Pool: 4})
				require.NoError(t, err)
				defer func() {
					ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
					defer cancel()
					require.NoError(t, s.Close(ctx))
				}()
				db, err := sql.Open(database.driver, url)
				require.NoError(t, err)
				defer func() { require.NoError(t, db.Close()) }()
				orders := func() (n int) {
					require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM orders").Scan(&n))
					return n
				}
				require.Error(t, s.Replay(t.Context(), "new"), "there is no answer yet")
				before := orders()
				require.NoError(t, s.Order(t.Context(), "a"))
				require.NoError(t, s.Keep(t.Context(), "b"))
				require.Equal(t, before+2, orders())
				require.NoError(t, s.Replay(t.Context(), "b"))
				require.Equal(t, before+2, orders())
				if c.Name != shop.Bare {
					require.Error(t, s.Order(t.Context(), "a"), "it has an answer")
					require.Equal(t, before+2, orders())
					require.NoError(t, s.Replay(t.Context(), "a"))
				}
				if claimer, ok := s.(shop.Claimer); ok {
					require.NoError(t, claimer.Claim(t.Context(), "c"))
					require.Error(t, claimer.Claim(t.Context(), "c"), "it is held")
				}
			})
		}
	}
}
