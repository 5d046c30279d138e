package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

// movedClock makes the statements of the store use a clock that can be set: clock_timestamp is
// found in the first schema of the path that has it.
const movedClock = `
CREATE SCHEMA moved;
CREATE TABLE moved.clock AS SELECT interval '0' AS by;
CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp() + by FROM moved.clock';
CREATE FUNCTION moved.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.statement_timestamp() + by FROM moved.clock';
CREATE FUNCTION moved.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.now() + by FROM moved.clock'`

// However the server's clock is set while work runs, there is one row, and one answer.
func TestClockOfTheServerIsSet(t *testing.T) {
	t.Parallel()
	for by, second := range map[string]error{
		"-1 hour": lock.ErrHeld, // the lease looks longer
		"-1 day":  lock.ErrHeld,
		"1 hour":  nil, // it looks over, and the second takes the key
	} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			shop := openShop(t, direct(t), func(cfg *pgxpool.Config) {
				cfg.ConnConfig.RuntimeParams["search_path"] = "moved, public, pg_catalog"
			})
			_, err := shop.db.Exec(t.Context(), movedClock)
			require.NoError(t, err)
			other := shop.locker(t, lock.WithLease(10*time.Second))

			first, replayed, err := shop.locker(t, lock.WithLease(10*time.Second)).Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
				receipt, err := order("first")(ctx)
				_, set := shop.db.Exec(t.Context(), "UPDATE moved.clock SET by = '"+by+"'")
				require.NoError(t, set)
				_, _, met := other.Once(t.Context(), "k", nil, order("second"))
				if second == nil {
					require.NoError(t, met)
				} else {
					require.ErrorIs(t, met, second)
				}
				return receipt, err
			})
			require.NoError(t, err)
			require.Equal(t, second == nil, replayed, "the winner's answer")
			require.Len(t, shop.orders(t), 1)

			again, replayed, err := other.Once(t.Context(), "k", nil, func(context.Context) ([]byte, error) { return nil, errors.New("it ran") })
			require.NoError(t, err)
			require.True(t, replayed)
			require.Equal(t, first, again)
		})
	}
}

// The twin of the test above: its clock is the clock that the store uses.
func TestClockThatIsMovedIsAsked(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	name := c.Database(t)
	conn := pgxtest.Connect(t, c.URL(name, ""))
	s := newStore(t, newPool(t, c.URL(name, "postgres"), func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["search_path"] = "moved, public, pg_catalog"
	}))
	_, err := conn.Exec(t.Context(), movedClock)
	require.NoError(t, err)
	claim := lock.Claim{Token: "a", Attempt: 1, Lease: time.Minute}
	e, err := s.Claim(t.Context(), "k", claim)
	require.NoError(t, err)
	require.Equal(t, lock.Held, e.State)
	_, err = conn.Exec(t.Context(), "UPDATE moved.clock SET by = '2 minutes'")
	require.NoError(t, err)
	e, err = s.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, lock.Free, e.State)
}
