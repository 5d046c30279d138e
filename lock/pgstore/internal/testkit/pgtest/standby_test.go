package pgtest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

// A standby lags behind a slow link, gets nothing over a cut link, and takes the place of its
// primary. The old primary then follows it on its own port. PgBouncer follows, too.
func TestFailoverAndBack(t *testing.T) {
	t.Parallel()
	link := pgtest.NewLink(t)
	first := pgtest.Start(t, link.Conninfo(), "wal_retrieve_retry_interval=50ms")
	first.Exec(t, "postgres", "CREATE TABLE orders (id int)")
	link.To(first.Addr())
	second := first.Standby(t, link.Conninfo(), "wal_retrieve_retry_interval=50ms")
	first.AwaitStandby(t, "async")
	b := pgtest.PgBouncer(t, first.Addr(), "server_login_retry=0")

	const lag = 500 * time.Millisecond
	link.Delay(lag)
	began := time.Now()
	first.Exec(t, "postgres", "INSERT INTO orders VALUES (1)")
	replica := pgxtest.Connect(t, second.URL("postgres", ""))
	require.Eventually(t, func() bool { return count(t, replica, "orders") == 1 }, 20*time.Second, time.Millisecond)
	require.GreaterOrEqual(t, time.Since(began), lag)
	link.Cut()
	first.Exec(t, "postgres", "INSERT INTO orders VALUES (2)")

	first.Kill()
	second.Promote(t)
	b.To(t, second.Addr())
	run(t, connect(t, b.URL("postgres", "")), "INSERT INTO orders VALUES (3)")
	require.Equal(t, 2, count(t, pgxtest.Connect(t, second.URL("postgres", "")), "orders"), "the second order was on the link")
	link.Delay(0)
	link.To(second.Addr())
	addr := first.Addr()
	first.Follow(t, second)
	second.AwaitStandby(t, "async")
	require.Equal(t, addr, first.Addr())
	require.Eventually(t, func() bool { return count(t, connect(t, first.URL("postgres", "")), "orders") == 2 }, 20*time.Second, 10*time.Millisecond)
}
