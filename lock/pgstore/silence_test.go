package pgstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	l := s.locker(tb)
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
