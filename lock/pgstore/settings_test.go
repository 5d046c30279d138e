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
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
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
			parallel.Run(t, fmt.Sprintf("%s, %v", where, mode), func(t *testing.T) {
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
					cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return must.Err(conn.Exec(ctx, set)) }
				}
				pool := must.Get(pgxpool.NewWithConfig(t.Context(), cfg))(t)
				t.Cleanup(pool.Close)
				require.Equal(t, "on", one[string](t, pool, "SELECT current_setting('default_transaction_read_only')"), "the work has them")
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
func TestSettingsBehindPgBouncer(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		parallel.Run(t, mode.String(), func(t *testing.T) {
			c := pgtest.Shared(t)
			db := c.Database(t)
			migrate(t, newStore(t, newPool(t, c.URL(db, "postgres"))))
			c.Exec(t, db, "ALTER DATABASE "+db+" SET statement_timeout = '29s'")
			b := pgtest.PgBouncer(t, c.Addr())
			pool := newPool(t, b.URL(db, "postgres"), func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode })
			store := newStore(t, pool)
			latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return store })
			for range 20 {
				require.Equal(t, "29s", one[string](t, pool, "SELECT current_setting('statement_timeout')"))
			}
		})
	}
}

// Check says which pool cannot read the bytea_output of a role, and only that.
func TestByteaBehindPgBouncer(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	db := c.Database(t)
	migrate(t, newStore(t, newPool(t, c.URL(db, "postgres"))))
	c.Exec(t, db, "ALTER DATABASE "+db+" SET bytea_output = 'escape'")
	exec := func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec }
	err := newStore(t, newPool(t, pgtest.PgBouncer(t, c.Addr()).URL(db, "postgres"), exec)).Check(t.Context())
	require.ErrorIs(t, err, lock.ErrDenied)
	require.ErrorContains(t, err, "bytea_output is escape")
	binary := newStore(t, newPool(t, c.URL(db, "postgres")))
	require.NoError(t, binary.Check(t.Context()))
	must.Entry(t)(binary.Claim(t.Context(), "k", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Fingerprint: []byte{0, '\\', 255}}))
	require.Equal(t, []byte{0, '\\', 255}, must.Entry(t)(binary.Get(t.Context(), "k")).Fingerprint)
}

// Warnings about other things than the wait for a standby are no failure: a database that is due for a
// VACUUM warns in each transaction, and goes on for days.
func TestOtherWarnings(t *testing.T) {
	t.Parallel()
	s := openShop(t, direct(t))
	run(t, s.db, `
		CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'database "shop" must be vacuumed within 39985967 transactions'; RETURN NEW; END $$;
		CREATE TRIGGER warn BEFORE INSERT OR UPDATE ON latch_entries FOR EACH ROW EXECUTE FUNCTION warn();
		CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION warn()`)
	claim := lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}
	require.Equal(t, lock.Held, must.Entry(t)(s.store.Claim(t.Context(), "lock", claim)).State)
	must.Yes(t)(s.store.Renew(t.Context(), "lock", claim))
	l := s.locker(t)
	require.Equal(t, "first", must.Run(t)(l.Once(t.Context(), "k", nil, order("first"))))
	require.Equal(t, "first", must.Replay(t)(l.Once(t.Context(), "k", nil, order("second"))))
}

// A hook of the pool resets each session after its use. The store's own sessions keep their settings.
func TestPoolThatResetsItsSessions(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	db := c.Database(t)
	migrate(t, newStore(t, newPool(t, c.URL(db, "postgres"))))
	c.Exec(t, db, "ALTER DATABASE "+db+" SET default_transaction_read_only = on")
	store := pgstore.New(newPool(t, c.URL(db, "postgres"), func(cfg *pgxpool.Config) {
		cfg.AfterRelease = func(conn *pgx.Conn) bool {
			_, err := conn.Exec(context.WithoutCancel(t.Context()), "RESET ALL")
			return err == nil
		}
	}))
	t.Cleanup(store.Close)
	for i := range 20 {
		must.Entry(t)(store.Claim(t.Context(), fmt.Sprint(i), lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}))
	}
}
