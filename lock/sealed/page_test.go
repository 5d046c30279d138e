package sealed_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/sealed"
)

func page(t *testing.T, s lock.Store) ([]lock.Entry, error) {
	t.Helper()
	p, ok := s.(lock.Inspector)
	require.True(t, ok)
	entries, _, err := p.Page(t.Context(), "", 1_000_000, nil)
	return entries, err
}

// A sealed store has no pages if the store below has none.
func TestPagesOverAStoreWithout(t *testing.T) {
	t.Parallel()
	_, err := page(t, sealed.New(struct{ lock.Store }{memstore.New()}, gcm(t, 1)))
	require.ErrorIs(t, err, errors.ErrUnsupported)
}
