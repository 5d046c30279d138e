package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

// Settings that are for the work do not reach the store's own connections, wherever they were
// made.
func TestSettingsThatAreForTheWork(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "tries every setting of a session")
	t.Parallel()
	settings := map[string]string{
		"bytea_output":                  "escape",
		"default_transaction_read_only": "on",
		"default_transaction_isolation": "serializable",
		"statement_timeout":             "1s",
		"lock_timeout":                  "1s",
	}
	for _, where := range []string{"pool", "role", "database", "hook"} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			t.Run(fmt.Sprintf("%s, %v", where, mode), func(t *testing.T) {
				t.Parallel()
				s := newService(t)
				s.grant(t, grantsOfThePage(t, s.role)...)
				cfg, err := pgxpool.ParseConfig(s.cluster.URL(s.db, s.role))
				require.NoError(t, err)
				cfg.ConnConfig.DefaultQueryExecMode = mode
				var set, alter string
				for name, value := range settings {
					set += fmt.Sprintf("SET %s = '%s';", name, value)
					switch where {
					case "pool":
						cfg.ConnConfig.RuntimeParams[name] = value
					case "role":
						alter += fmt.Sprintf("ALTER ROLE %s SET %s = '%s';", s.role, name, value)
					case "database":
						alter += fmt.Sprintf("ALTER DATABASE %s SET %s = '%s';", s.db, name, value)
					}
				}
				s.grant(t, alter)
				if where == "hook" {
					cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
						_, err := conn.Exec(ctx, set)
						return err
					}
				}
				pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
				require.NoError(t, err)
				t.Cleanup(pool.Close)
				var read string
				require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_setting('default_transaction_read_only')").Scan(&read))
				require.Equal(t, "on", read, "the work has them")
				store := pgstore.New(pool)
				t.Cleanup(store.Close)
				require.NoError(t, store.Check(t.Context()))
				// Its transactions are the work's, and read only.
				latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return struct{ lock.Store }{store} })

				// A claim that waits for longer than a statement of the work may.
				admin := pgxtest.Connect(t, s.cluster.URL(s.db, ""))
				tx, err := admin.Begin(t.Context())
				require.NoError(t, err)
				run(t, tx, "LOCK TABLE latch_entries IN ACCESS EXCLUSIVE MODE")
				done := make(chan error, 1)
				go func() {
					_, err := store.Claim(t.Context(), "waits", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute})
					done <- err
				}()
				time.Sleep(1500 * time.Millisecond) // on the clock of the server
				require.NoError(t, tx.Rollback(t.Context()))
				require.NoError(t, <-done)
			})
		}
	}
}

// Behind PgBouncer a session is not the store's own, and none of its settings is changed.
// The store reads each output format of the server.
func TestSettingsBehindPgBouncer(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			c := pgtest.Shared(t)
			db := c.Database(t)
			migrate(t, newStore(t, newPool(t, c.URL(db, "postgres"))))
			c.Exec(t, db, "ALTER DATABASE "+db+" SET bytea_output = escape; ALTER DATABASE "+db+" SET statement_timeout = '29s'")
			b := pgtest.PgBouncer(t, c.Addr())
			pool := newPool(t, b.URL(db, "postgres"), func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode })
			store := pgstore.New(pool)
			t.Cleanup(store.Close)
			latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return store })
			for range 20 {
				var timeout string
				require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_setting('statement_timeout')").Scan(&timeout))
				require.Equal(t, "29s", timeout)
			}
		})
	}
}
