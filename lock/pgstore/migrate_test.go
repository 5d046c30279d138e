package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

// vacuumed runs a real VACUUM of the store's table that lasts until stop: it sleeps for
// longer at each page than the test does.
func vacuumed(t *testing.T, c *pgtest.Cluster, db string) (stop func()) {
	t.Helper()
	conn := pgxtest.Connect(t, c.URL(db, ""))
	_, err := conn.Exec(t.Context(), `
		INSERT INTO latch_entries SELECT int8send(i), '', 1, '', '', 0, now() + interval '1 day', 0, repeat('r', 500)::bytea, now() + interval '1 day' FROM generate_series(1, 20000) AS i;
		DELETE FROM latch_entries WHERE get_byte(key, 7) % 2 = 0;
		SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1`)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = conn.Exec(ctx, "VACUUM latch_entries") // is cancelled
	}()
	look := pgxtest.Connect(t, c.URL(db, ""))
	require.Eventually(t, func() bool {
		var n int
		err := look.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_progress_vacuum WHERE datname = current_database()").Scan(&n)
		return err == nil && n == 1
	}, 20*time.Second, time.Millisecond)
	return func() { cancel(); <-done }
}

// claimUntil claims keys, one after the other, until done is closed, and returns how long the
// slowest claim took.
func claimUntil(t *testing.T, s *pgstore.Store, done <-chan struct{}) (slowest time.Duration, err error) {
	t.Helper()
	for i := 0; ; i++ {
		select {
		case <-done:
			return slowest, err
		default:
		}
		began := time.Now()
		if _, err = s.Claim(t.Context(), fmt.Sprint("claimed ", i), lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}); err != nil {
			return slowest, err
		}
		slowest = max(slowest, time.Since(began))
	}
}

// While VACUUM runs, a process that starts holds up no claim. The twin has the DDL run as it
// stands in Schema, which locks the table before it looks whether the index is there.
func TestMigrateDuringVacuumStopsNoClaim(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "measures claims during VACUUM")
	t.Parallel()
	const patience = 2 * time.Second
	for name, tt := range map[string]struct {
		start func(ctx context.Context, url string) error
		stops bool
	}{
		"Open": {func(ctx context.Context, url string) error {
			s, err := pgstore.Open(ctx, url)
			if err == nil {
				s.Close()
			}
			return err
		}, false},
		"Schema": {func(ctx context.Context, url string) error {
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
			_, err = conn.Exec(ctx, pgstore.Schema)
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := pgtest.Shared(t)
			db := c.Database(t)
			url := c.URL(db, "postgres")
			s := newStore(t, newPool(t, url))
			stop := vacuumed(t, c, db)
			defer stop()
			started := make(chan struct{})
			var startErr error
			go func() {
				defer close(started)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				startErr = tt.start(ctx, url)
			}()
			slowest, err := claimUntil(t, s, started)
			require.NoError(t, err)
			t.Logf("the slowest claim took %v; the start: %v", slowest, startErr)
			if tt.stops {
				require.ErrorIs(t, startErr, context.DeadlineExceeded)
				require.Greater(t, slowest, patience/2)
				return
			}
			require.NoError(t, startErr)
			require.Less(t, slowest, patience/2)
		})
	}
}

// A lock on the table that bears claims bears a migration of a table that is complete.
func TestMigrateTakesNoLockOnACompleteTable(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	db := c.Database(t)
	s := newStore(t, newPool(t, c.URL(db, "postgres")), pgstore.WithTable(`public.o'brien "x"`))
	conn := pgxtest.Connect(t, c.URL(db, ""))
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	run(t, tx, `LOCK TABLE "o'brien ""x""" IN SHARE UPDATE EXCLUSIVE MODE`)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, s.Migrate(ctx))
	require.NoError(t, tx.Rollback(t.Context()))
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := pgtest.Shared(t)
			db := c.Database(t)
			s := newStore(t, newPool(t, c.URL(db, "postgres")))
			c.Exec(t, db, statement)
			migrate(t, s)
			require.NoError(t, s.Check(t.Context()))
			var indexes int
			require.NoError(t, pgxtest.Connect(t, c.URL(db, "")).QueryRow(t.Context(), `
				SELECT count(*) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
				WHERE i.indrelid = 'latch_entries'::regclass AND a.attname = 'sweep_at'`).Scan(&indexes))
			require.Equal(t, 1, indexes)
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
