package pgstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// Behind PgBouncer a session of the server serves one client after the other. Work that has sent
// its own COMMIT leaves the mark of its transaction there. Later work on the same session, which has
// sent its own ROLLBACK, is not taken as committed.
func TestMarkOfAnEarlierTransaction(t *testing.T) {
	t.Parallel()
	s := openShop(t, bounced(t, pgtest.Shared(t).Addr(), "default_pool_size=1"))
	l := s.locker(t)
	ending := func(name, end string) func(ctx context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) {
			if _, err := order(name)(ctx); err != nil {
				return nil, err
			}
			tx, _ := pgstore.Tx(ctx)
			_, err := tx.Exec(ctx, end)
			return []byte(name), err
		}
	}
	_, _, err := l.Once(t.Context(), "committed", nil, ending("committed", "COMMIT"))
	require.NoError(t, err)
	for i := range 5 {
		_, _, err = l.Once(t.Context(), fmt.Sprint(i), nil, ending("rolled back", "ROLLBACK"))
		require.ErrorIs(t, err, lock.ErrNotApplied, "answered without its effect")
	}
	require.Equal(t, []string{"committed"}, s.orders(t))
}
