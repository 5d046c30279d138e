package mysqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// atOnce places orders at the same time, so that the pools have several connections. An order that was
// certainly not placed is tried again.
func atOnce(t *testing.T, l *lock.Locker, keys string) {
	t.Helper()
	var all, begun sync.WaitGroup
	begun.Add(2) // as many as the pool of the work keeps
	for i := range 2 {
		all.Go(func() {
			ready, err := sync.OnceFunc(begun.Done), lock.ErrNotApplied
			for end := time.Now().Add(time.Minute); errors.Is(err, lock.ErrNotApplied) && time.Now().Before(end); {
				_, _, err = l.Once(context.WithoutCancel(t.Context()), fmt.Sprint(keys, i), nil, func(ctx context.Context) ([]byte, error) {
					err := exec(ctx, insert, keys)
					ready()
					begun.Wait()
					return nil, err
				})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// galera is the library of the cluster, in a package that Debian's mariadb-server needs.
const galera = "/usr/lib/galera/libgalera_smm.so"

// The primary is switched as operators plan it: the old one goes on and refuses writes, and new
// connections to the same address lead to the new one. At most one order fails, and not for good.
func TestDemotedPrimary(t *testing.T) {
	t.Parallel()
	cluster := []string{
		"wsrep-on=ON", "wsrep-provider=" + galera, "wsrep-cluster-address=gcomm://", "wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:0",
		"binlog-format=ROW", "innodb-autoinc-lock-mode=2",
	}
	for demotion, settings := range map[string][]string{"read_only = ON": nil, "wsrep_reject_queries = ALL": cluster} {
		t.Run(demotion, func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat(galera); settings != nil && (err != nil || !isMariaDB(t)) {
				if os.Getenv("CI") == "true" && isMariaDB(t) {
					t.Fatalf("no Galera at %s: install galera-4", galera)
				}
				t.Skip("SKIPPED: no MariaDB with Galera")
			}
			hosts := []*mysqltest.Server{mysqltest.Start(t, settings...), mysqltest.Shared(t)}
			name := hosts[0].Database(t)
			for _, host := range hosts {
				host.Exec(t, "", fmt.Sprintf("CREATE DATABASE IF NOT EXISTS %[1]s; CREATE USER of_%[1]s@'127.0.0.1'; GRANT ALL ON %[1]s.* TO of_%[1]s@'127.0.0.1'", name))
				host.Exec(t, name, ordersTable)
			}
			p := sqlproxy.MySQL(t, hosts[0].Addr(), nil)
			store := open(t, through(hosts[0], hosts[0].DSN(name, "of_"+name), p.Addr()))
			heir := open(t, hosts[1].DSN(name, ""))
			l := sqlshop.Locker(t, store)
			atOnce(t, l, "before")
			p.To(hosts[1].Addr())

			// In the middle of an order.
			_, _, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
				err := exec(ctx, insert, "first")
				hosts[0].Exec(t, "", "SET GLOBAL "+demotion)
				_, claimed := store.Claim(ctx, "another", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute})
				return nil, errors.Join(err, claimed)
			})
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.ErrorIs(t, err, lock.ErrNotApplied)
			require.ErrorContains(t, err, "the work's transaction was rolled back")
			for i := range 10 {
				must.Run(t)(l.Once(t.Context(), fmt.Sprint("after", i), nil, order("after")))
			}
			must.Run(t)(l.Once(t.Context(), "k", nil, order("again")))
			var orders int
			require.NoError(t, heir.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(&orders))
			require.Equal(t, 11, orders)
			hosts[0].Kill()
		})
	}
}

// A network forgets all connections, and notifies neither side. The next orders are placed over new
// ones, in a few seconds, those of other customers too.
func TestSilentConnections(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for silent connections")
	t.Parallel()
	s, p := behind(t, mysqltest.Shared(t), nil)
	l := sqlshop.Locker(t, s.store)
	atOnce(t, l, "before")
	p.Silence()
	began := time.Now()
	atOnce(t, l, "after")
	t.Logf("%v", time.Since(began))
	require.Less(t, time.Since(began), time.Minute)
	require.Len(t, s.Orders(t), 4)
}

// The table of the entries is locked, as by a dump or an ALTER TABLE. The calls of its callers fail,
// and their sessions end at the server, too.
func TestLockedTable(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	conn := must.Get(s.DB.Conn(t.Context()))(t)
	defer conn.Close()
	must.Get(conn.ExecContext(t.Context(), "LOCK TABLES latch_entries WRITE"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.store.Claim(ctx, fmt.Sprint(i), lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}); err == nil {
					t.Error("claimed")
				}
			}
		})
	}
	sessions := func() (n int) {
		require.NoError(t, s.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE db = ? AND state LIKE '%lock%'", s.name).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return sessions() > 0 }, 20*time.Second, 5*time.Millisecond, "they wait for the table")
	cancel()
	all.Wait()
	require.Eventually(t, func() bool { return sessions() == 0 }, 20*time.Second, 50*time.Millisecond)
	must.Get(conn.ExecContext(t.Context(), "UNLOCK TABLES"))(t)
}

// Close returns when the calls in flight have ended.
func TestCloseWaitsForCalls(t *testing.T) {
	t.Parallel()
	const delay = 300 * time.Millisecond
	s, p := behind(t, mysqltest.Shared(t), nil)
	sqlshop.Claim(t, s.store, "k", "t")
	sent := make(chan struct{}, 1)
	p.Decide(func(x *sqlproxy.Exchange) (f sqlproxy.Fault) {
		if x.Begins("UPDATE") {
			f = sqlproxy.Fault{Action: sqlproxy.DelayReply, Delay: delay}
			sent <- struct{}{}
		}
		return f
	})
	began, renewed := time.Now(), make(chan error, 1)
	go func() {
		_, err := s.store.Renew(t.Context(), "k", lock.Claim{Token: "t", Lease: time.Minute})
		renewed <- err
	}()
	<-sent
	s.store.Close()
	require.GreaterOrEqual(t, time.Since(began), delay)
	require.NoError(t, <-renewed)
}
