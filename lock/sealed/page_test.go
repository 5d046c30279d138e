package sealed_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/sealed"
)

func page(t *testing.T, s lock.Store) ([]lock.Entry, error) {
	t.Helper()
	p, ok := s.(lock.Pager)
	require.True(t, ok)
	entries, _, err := p.Page(t.Context(), "", 1_000_000, nil)
	return entries, err
}

// What lists in no steps below, lists in none above.
func TestPagesOverAStoreWithout(t *testing.T) {
	t.Parallel()
	below := memstore.New()
	_, err := page(t, sealed.New(struct {
		lock.Store
		lock.Inspector
	}{below, below}, gcm(t, 1)))
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestPages(t *testing.T) {
	t.Parallel()
	s := sealed.New(memstore.New(), gcm(t, 1))
	_, _, err := lockerOver(t, s).Once(t.Context(), "job=7", nil, func(context.Context) ([]byte, error) { return []byte("done"), nil })
	require.NoError(t, err)
	found, err := page(t, s)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, lock.Settled, found[0].State)
	require.Empty(t, found[0].Receipt)
}
