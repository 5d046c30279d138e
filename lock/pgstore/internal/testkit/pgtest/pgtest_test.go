package pgtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

const patience = 30 * time.Second

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	return pgxtest.Connect(t, url+"&default_query_exec_mode=exec") // of which every PgBouncer knows
}

func run(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func count(t *testing.T, conn *pgx.Conn, table string) (n int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

func TestDatabasesAreFreshAndDropped(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	var names []string
	t.Run("each", func(t *testing.T) {
		for range 2 {
			name := c.Database(t)
			names = append(names, name)
			conn := connect(t, c.URL(name, ""))
			run(t, conn, "CREATE TABLE orders (id int)") // not there yet
			var db, fsync string
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_database(), current_setting('fsync')").Scan(&db, &fsync))
			require.Equal(t, []string{name, "off"}, []string{db, fsync})
		}
	})
	require.NotEqual(t, names[0], names[1])
	var left int
	require.NoError(t, pgxtest.Connect(t, c.URL("postgres", "")).QueryRow(t.Context(),
		"SELECT count(*) FROM pg_database WHERE datname = ANY($1)", names).Scan(&left))
	require.Zero(t, left)
}

func TestRolesConnectWithTheirOwnRights(t *testing.T) {
	t.Parallel()
	c := pgtest.Start(t)
	db := c.Database(t)
	c.Exec(t, db, "CREATE TABLE orders (id int); CREATE ROLE clerk LOGIN")
	_, err := connect(t, c.URL(db, "clerk")).Exec(t.Context(), "SELECT FROM orders")
	require.ErrorContains(t, err, "permission denied")
}

func TestKillAndRestartRecovers(t *testing.T) {
	t.Parallel()
	c := pgtest.Start(t, "fsync=on")
	db := c.Database(t)
	conn := connect(t, c.URL(db, ""))
	run(t, conn, "CREATE TABLE orders (id int)")
	run(t, conn, "INSERT INTO orders VALUES (1)")
	run(t, conn, "BEGIN")
	run(t, conn, "INSERT INTO orders VALUES (2)")

	c.Kill()
	require.False(t, c.Running())
	_, err := conn.Exec(t.Context(), "COMMIT")
	require.Error(t, err)
	_, err = pgx.Connect(t.Context(), c.URL(db, ""))
	require.Error(t, err, "refused")
	c.Kill() // does nothing

	c.Restart(t)
	require.Contains(t, c.Log(), "database system was not properly shut down")
	again := connect(t, c.URL(db, ""))
	require.Equal(t, 1, count(t, again, "orders"), "what was committed is there, and nothing else")

	c.Restart(t) // kills a server that runs
	_, err = again.Exec(t.Context(), "SELECT 1")
	require.Error(t, err)
	require.Equal(t, 1, count(t, connect(t, c.URL(db, "")), "orders"))
}

func TestPauseAnswersNothing(t *testing.T) {
	t.Parallel()
	c := pgtest.Start(t)
	db := c.Database(t)
	conn, silent := connect(t, c.URL(db, "")), connect(t, c.URL(db, ""))

	c.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := silent.Exec(ctx, "SELECT 1")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = pgx.Connect(ctx, c.URL(db, ""))
	require.Error(t, err, "new connections hang")
	require.True(t, c.Running())

	c.Resume()
	run(t, conn, "SELECT 1")
	c.Pause()
	c.Kill() // also a stopped process
	require.False(t, c.Running())
}

func TestBouncerPoolsTransactions(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	db := c.Database(t)
	b := pgtest.PgBouncer(t, c.Addr(), "default_pool_size=1", "user=pgtest_clerk")
	c.Exec(t, db, "CREATE ROLE pgtest_clerk LOGIN")
	t.Cleanup(func() { c.Exec(t, "postgres", "DROP ROLE pgtest_clerk") })

	first, second := connect(t, b.URL(db, "")), connect(t, b.URL(db, ""))
	var pids [2]int
	for i, conn := range []*pgx.Conn{first, second} {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pids[i]))
	}
	require.Equal(t, pids[0], pids[1], "two clients, one session: it is in transaction mode")
	var user string
	require.NoError(t, connect(t, b.URL(db, "pgtest_clerk")).QueryRow(t.Context(), "SELECT current_user").Scan(&user))
	require.Equal(t, "pgtest_clerk", user)

	b.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := first.Exec(ctx, "SELECT 1")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	b.Resume()
	run(t, second, "SELECT 1")
	b.Kill()
	_, err = second.Exec(t.Context(), "SELECT 1")
	require.Error(t, err)
}

// TestBouncerPreparesAsItSays also shows that this version knows the setting:
// with an unknown setting it would not start.
func TestBouncerPreparesAsItSays(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	b := pgtest.PgBouncer(t, c.Addr())
	db := c.Database(t)
	one, other := connect(t, b.URL(db, "")), connect(t, b.URL(db, ""))
	_, err := one.Prepare(t.Context(), "pgtest", "SELECT 1")
	require.NoError(t, err)
	run(t, other, "BEGIN") // takes the session on which it was prepared
	_, err = one.Exec(t.Context(), "pgtest")
	if b.Prepares() {
		require.NoError(t, err)
	} else {
		require.ErrorContains(t, err, "does not exist")
	}
}
