package pgstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// fill opens all connections of the pool, and leaves them idle.
func (s *shop) fill(tb testing.TB) {
	tb.Helper()
	conns := make([]*pgxpool.Conn, s.pool.Config().MaxConns)
	for i := range conns {
		var err error
		conns[i], err = s.pool.Acquire(tb.Context())
		require.NoError(tb, err)
	}
	for _, conn := range conns {
		conn.Release()
	}
}

// placeAtOnce places n orders at the same time, and fails tb for each that is not placed.
func (s *shop) placeAtOnce(tb testing.TB, n int, when string) {
	tb.Helper()
	l := s.locker(tb, lock.WithBudget(15*time.Second))
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			name := fmt.Sprint(when, i)
			_, _, err := l.Once(tb.Context(), name, nil, insert(name))
			assert.NoError(tb, err)
		})
	}
	all.Wait()
}

// A restart, or a proxy, closes all connections of the pool. A transaction that has certainly not
// begun is begun again on another connection.
func TestWorkAfterItsConnectionsWereClosed(t *testing.T) {
	t.Parallel()
	s := openShop(t, direct(t), func(cfg *pgxpool.Config) {
		cfg.MaxConns = 8
		cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // as for connections that were just in use
	})
	s.fill(t)
	_, err := s.db.Exec(t.Context(), "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	require.NoError(t, err)
	s.placeAtOnce(t, 8, "after")
	require.Len(t, s.orders(t), 8)
}

// A NAT, or a node that has gone without a word, drops all idle connections: what is sent on them
// is lost, and neither side is notified.
func TestSilentConnections(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for silent connections")
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, through func(db string) string) *shop{
		"a pool": func(t *testing.T, through func(db string) string) *shop {
			t.Helper()
			s := openShop(t, through, func(cfg *pgxpool.Config) { cfg.ShouldPing = pgstore.PingIdle() })
			s.fill(t)
			return s
		},
		"database/sql": openSQLShopThrough,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var last, silent int // the newest connection, and the newest that is silent
			proxy := sqlproxy.Postgres(t, pgtest.Shared(t).Addr(), func(x *sqlproxy.Exchange) sqlproxy.Fault {
				mu.Lock()
				defer mu.Unlock()
				last = max(last, x.Conn)
				if x.Conn <= silent {
					return sqlproxy.Fault{Action: sqlproxy.LoseRequest}
				}
				return sqlproxy.Fault{}
			})
			s := open(t, func(db string) string { return proxy.URL(db, "postgres") })
			s.placeAtOnce(t, 4, "before")
			used := time.Now()
			require.Eventually(t, func() bool { return time.Since(used) > 1100*time.Millisecond }, time.Minute, 50*time.Millisecond) // the drivers ask a connection after a second
			mu.Lock()
			silent = last
			mu.Unlock()
			s.placeAtOnce(t, 8, "after")
			require.Len(t, s.orders(t), 12)
		})
	}
}
