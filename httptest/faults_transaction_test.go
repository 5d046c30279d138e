package latchtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// A commit that is lost has the outcome that it had.
func TestFaultsOfACommit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		disturb func(s lock.Store) lock.Store
		effects []string
	}{
		"reply":   {func(s lock.Store) lock.Store { return latchtest.LoseReply(s, latchtest.Settle, 1) }, []string{"row"}},
		"request": {func(s lock.Store) lock.Store { return latchtest.LoseRequest(s, latchtest.Settle, 1) }, nil},
		"stall":   {func(s lock.Store) lock.Store { return latchtest.Stall(s, latchtest.Settle, 1, 3*time.Second) }, nil},
		"in time": {func(s lock.Store) lock.Store { return latchtest.Stall(s, latchtest.Settle, 1, 10*time.Millisecond) }, []string{"row"}},
		"nested": {func(s lock.Store) lock.Store {
			return latchtest.LoseReply(latchtest.LoseRequest(s, latchtest.Release, 1), latchtest.Settle, 1)
		}, []string{"row"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				truth := faketx.New()
				l := lock.New(tt.disturb(truth), lock.WithLogger(quiet), lock.WithTransaction())
				place := func(ctx context.Context) ([]byte, error) { return []byte("answer"), faketx.Insert(ctx, "row") }
				receipt, _, err := l.Once(t.Context(), "key", nil, place)
				if tt.effects == nil {
					require.ErrorIs(t, err, lock.ErrUnavailable)
				} else {
					require.NoError(t, err)
					require.Equal(t, "answer", string(receipt))
				}
				time.Sleep(10 * time.Second)
				require.Equal(t, tt.effects, truth.Effects())
				_, replayed, err := l.Once(t.Context(), "key", nil, place)
				require.NoError(t, err)
				require.Equal(t, tt.effects != nil, replayed)
				require.Equal(t, []string{"row"}, truth.Effects())
				require.NoError(t, l.Close(t.Context()))
				require.Zero(t, truth.Open())
			})
		})
	}
	require.ErrorContains(t, lock.Describe(latchtest.LoseReply(memstore.New(), latchtest.Settle, 1)).NoTransactions, "no Transactor")
}
