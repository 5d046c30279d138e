package sealed_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/sealed"
)

// A receipt that is committed with its work is sealed, and opened for repeats.
func TestTransactionIsSealed(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		below := faketx.New()
		l := lock.New(sealed.New(below, gcm(t, 1)), lock.WithTransaction(), lock.WithLogger(quiet))
		const secret = "4111 1111 1111 1111"
		record := storedKey(key)
		first, replayed, err := l.Once(t.Context(), key, nil, func(ctx context.Context) ([]byte, error) {
			return []byte(secret), faketx.Insert(ctx, "row")
		})
		require.NoError(t, err)
		require.False(t, replayed)
		require.Equal(t, secret, string(first))
		e := must.Entry(t)(below.Get(t.Context(), record))
		require.Equal(t, lock.Settled, e.State)
		require.False(t, bytes.Contains(e.Receipt, []byte("4111")))
		require.Equal(t, secret, must.Replay(t)(l.Once(t.Context(), key, nil, nil)))
		require.Equal(t, []string{"row"}, below.Effects())

		below.Next(faketx.Begin, faketx.LoseRequest)
		_, _, err = l.Once(t.Context(), "another", nil, nil)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NoError(t, l.Close(t.Context()))
	})
}

func TestSealedWithoutTransactions(t *testing.T) {
	t.Parallel()
	s := sealed.New(memstore.New(), gcm(t, 1))
	require.ErrorIs(t, s.Describe().NoTransactions, errors.ErrUnsupported)
	_, _, err := s.Begin(t.Context(), "key", "token")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestSealedTransactionsKeepTheRules(t *testing.T) {
	t.Parallel()
	latchtest.TestStore(t, 20*time.Millisecond, func(t *testing.T) lock.Store { return sealed.New(faketx.New(), gcm(t, 1)) })
}
