package pgstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
)

// The claim of a set is one exchange, however many keys it has, and a refusal two: the claim, and the
// reading of the entry in its way. Each release is one.
func TestRoundTripsOfASet(t *testing.T) {
	t.Parallel()
	var trips atomic.Int64
	proxy := sqlproxy.Postgres(t, pgtest.Shared(t).Addr(), func(*sqlproxy.Exchange) sqlproxy.Fault {
		trips.Add(1)
		return sqlproxy.Fault{}
	})
	s := openShop(t, func(db string) string { return proxy.URL(db, "postgres") }, func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	// With the budget of a busy machine: a release that is given up goes on in the background.
	l := lock.New(s.store, lock.WithLogger(sqlshop.Quiet), lock.WithBudget(10*time.Second))
	t.Cleanup(func() { sqlshop.CloseLocker(t, l) })
	other := lock.New(s.store, lock.WithLogger(sqlshop.Quiet), lock.WithBudget(10*time.Second))
	t.Cleanup(func() { sqlshop.CloseLocker(t, other) })
	keys := make([]string, 5)
	for i := range keys {
		keys[i] = lock.Key("item", fmt.Sprint(i))
	}
	set := func(l *lock.Locker, fn func(ctx context.Context) error) (int64, error) {
		before := trips.Load()
		err := l.DoAll(t.Context(), keys, fn)
		return trips.Load() - before, err
	}
	granted, refused := int64(99), int64(99)
	// Until the connections have prepared their statements. They do so again whenever the number of
	// claims has doubled.
	for n := 0; n < 100 && (granted > 1+5 || refused > 2); n++ {
		n, err := set(l, func(context.Context) error { return nil })
		require.NoError(t, err)
		granted = min(granted, n)
		_, err = set(other, func(context.Context) error {
			n, err := set(l, nil)
			require.ErrorIs(t, err, lock.ErrHeld)
			refused = min(refused, n)
			return nil
		})
		require.NoError(t, err)
	}
	require.EqualValues(t, 1+5, granted)
	require.EqualValues(t, 2, refused)
}
