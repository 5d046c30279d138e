package pgstore_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
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
	run(t, s.db, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	s.placeAtOnce(t, 8, "after")
	require.Len(t, s.orders(t), 8)
}

// The connection of the work has ended at its first statement, and the server takes no other one at
// this moment. The next statement connects.
func TestWorkThatConnectsLater(t *testing.T) {
	t.Parallel()
	s, away := openShopElsewhere(t, "127.0.0.1:1")
	require.Equal(t, "first", must.Run(t)(s.locker(t).Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
		away.Store(true)
		run(t, s.db, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		require.Error(t, exec(ctx, "SELECT 1"))
		away.Store(false)
		return order("first")(ctx)
	})))
	require.Equal(t, []string{"first"}, s.orders(t))
}

// Dials that get no answer give their places back: four are all that the store has.
func TestDialsIntoSilence(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for silent connections")
	t.Parallel()
	mute := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = mute.Close() })
	s, away := openShopElsewhere(t, mute.Addr().String())
	l := s.locker(t)
	call := func() error { return l.Do(t.Context(), "k", func(context.Context) error { return nil }) }
	away.Store(true)
	for range 4 {
		require.ErrorIs(t, call(), lock.ErrUnavailable)
	}
	away.Store(false)
	require.Eventually(t, func() bool { return call() == nil }, time.Minute, 50*time.Millisecond)
}

// openShopElsewhere also returns a switch, with which dials lead to another address.
func openShopElsewhere(t *testing.T, elsewhere string) (*shop, *atomic.Bool) {
	t.Helper()
	away := new(atomic.Bool)
	return openShop(t, direct(t), func(cfg *pgxpool.Config) {
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if away.Load() {
				addr = elsewhere
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	}), away
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
		parallel.Run(t, name, func(t *testing.T) {
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

// waiting returns the number of sessions that wait for a lock.
func (s *shop) waiting(tb testing.TB) int {
	tb.Helper()
	return sessions(tb, s.db, waitsForLock)
}

// lock locks a table, as an ALTER TABLE does.
func (s *shop) lock(tb testing.TB, table string) (unlock func()) {
	tb.Helper()
	ddl := must.Get(pgxtest.Connect(tb, s.db.Config().ConnString()).Begin(tb.Context()))(tb)
	run(tb, ddl, "LOCK TABLE "+table)
	return func() { require.NoError(tb, ddl.Rollback(tb.Context())) }
}

// Calls that wait for a locked table end in their time, and so do their sessions at the server.
// Otherwise each call would need another one.
func TestLockedTable(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "interrupts calls in real time")
	t.Parallel()
	for table, call := range map[string]func(ctx context.Context, s *shop, key string) error{
		"latch_entries": func(ctx context.Context, s *shop, key string) error { return must.Err(s.store.Get(ctx, key)) },
		"orders": func(ctx context.Context, s *shop, key string) error {
			within, tx, err := s.store.Begin(ctx, key, "t")
			if err == nil {
				_, err = insert(key)(within)
				_ = tx.Rollback(context.WithoutCancel(ctx))
			}
			return err
		},
	} {
		for i := range 4 {
			sql, pooled := i%2 == 1, i/2 == 1
			parallel.Run(t, fmt.Sprintf("%s, database/sql %v, PgBouncer %v", table, sql, pooled), func(t *testing.T) {
				through := direct(t)
				if pooled {
					through = bounced(t, pgtest.Shared(t).Addr())
				}
				s := openShop(t, through)
				if sql {
					s = openSQLShopThrough(t, through)
				}
				s.placeAtOnce(t, 1, "before")
				unlock := s.lock(t, table)
				const callers, calls = 4, 20
				var all sync.WaitGroup
				for c := range callers {
					all.Go(func() {
						for n := range calls {
							began := time.Now()
							ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 200*time.Millisecond)
							assert.Error(t, call(ctx, s, fmt.Sprint(c, n)))
							cancel()
							assert.Less(t, time.Since(began), 10*time.Second)
						}
					})
				}
				all.Wait()
				// On a busy machine, a request to cancel may come before its statement, and is in vain.
				require.Eventually(t, func() bool { return s.waiting(t) < callers*calls/2 }, 20*time.Second, 50*time.Millisecond)
				unlock()
				s.placeAtOnce(t, 1, "after")
				require.Equal(t, []string{"after0", "before0"}, s.orders(t))
			})
		}
	}
}

// The requests to cancel are lost. The store's own sessions do not wait for long.
func TestLockedTableWithoutCancel(t *testing.T) {
	t.Parallel()
	proxy := sqlproxy.Postgres(t, pgtest.Shared(t).Addr(), func(x *sqlproxy.Exchange) sqlproxy.Fault {
		if x.Cancel {
			return sqlproxy.Fault{Action: sqlproxy.LoseRequest}
		}
		return sqlproxy.Fault{}
	})
	s := openShop(t, func(db string) string { return proxy.URL(db, "postgres") })
	unlock := s.lock(t, "latch_entries")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, must.Err(s.store.Get(ctx, "k")), context.DeadlineExceeded)
	require.Equal(t, 1, s.waiting(t))
	require.Eventually(t, func() bool { return s.waiting(t) == 0 }, time.Minute, 50*time.Millisecond)
	unlock()
}
