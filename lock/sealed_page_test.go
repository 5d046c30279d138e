package lock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// What lists in no steps below, lists in none above.
func TestPagesOverAStoreWithout(t *testing.T) {
	t.Parallel()
	store := lock.NewSealed(struct {
		lock.Store
		lock.Inspector
	}{lock.NewMemory(), lock.NewMemory().(lock.Inspector)}, gcm(t, 1))
	_, _, err := store.(pager).Page(t.Context(), "", 20, nil)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestSealedPages(t *testing.T) {
	t.Parallel()
	store := lock.NewSealed(lock.NewMemory(), gcm(t, 1))
	l := lockerOver(t, store)
	_, _, err := l.Once(t.Context(), "job=7", nil, func(context.Context) ([]byte, error) { return []byte("done"), nil })
	require.NoError(t, err)
	found, _ := pages(t, store.(pager), 20, nil)
	require.Len(t, found, 1)
	for _, e := range found {
		require.Equal(t, lock.Settled, e.State)
		require.Empty(t, e.Receipt)
	}
}
