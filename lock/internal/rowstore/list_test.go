package rowstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// rowsOf reads n rows. Each third row has ended.
func rowsOf(n int) rowstore.Read {
	return func(_ context.Context, after []byte, limit int, _ bool) (rows []*rowstore.Row, err error) {
		for i := range n {
			key := fmt.Appendf(nil, "%06d", i)
			if bytes.Compare(key, after) > 0 && len(rows) < limit {
				rows = append(rows, &rowstore.Row{Key: key, Over: int64((i + 1) % 3)})
			}
		}
		return rows, nil
	}
}

func TestListAndPagesHaveEachLiveEntryOnce(t *testing.T) {
	t.Parallel()
	const n = 1501
	var listed, paged []string
	for e, err := range rowstore.List(t.Context(), rowsOf(n)) {
		require.NoError(t, err)
		listed = append(listed, e.Key)
	}
	require.Len(t, listed, n-n/3)
	require.True(t, slices.IsSorted(listed))
	odd := func(key string) bool { return key[len(key)-1]%2 == 1 }
	for cursor, more := "", true; more; more = cursor != "" {
		page, next, err := rowstore.Page(t.Context(), "shop", cursor, 7, odd, rowsOf(n))
		require.NoError(t, err)
		for _, e := range page {
			paged = append(paged, e.Key)
		}
		cursor = next
	}
	require.Equal(t, slices.DeleteFunc(slices.Clone(listed), func(key string) bool { return !odd(key) }), paged)
}

func TestListEndsWithItsCallerAndWithAnError(t *testing.T) {
	t.Parallel()
	for e, err := range rowstore.List(t.Context(), rowsOf(10)) {
		require.NoError(t, err)
		require.Equal(t, "000000", e.Key)
		break
	}
	failure := errors.New("no server")
	fails := func(context.Context, []byte, int, bool) ([]*rowstore.Row, error) { return nil, failure }
	times := 0
	for _, err := range rowstore.List(t.Context(), fails) {
		require.ErrorIs(t, err, failure)
		times++
	}
	require.Equal(t, 1, times)
	_, _, err := rowstore.Page(t.Context(), "shop", "", 1, nil, fails)
	require.ErrorIs(t, err, failure)
	_, _, err = rowstore.Page(t.Context(), "shop", "no cursor", 1, nil, fails)
	require.ErrorIs(t, err, lock.ErrNotApplied)
	require.ErrorContains(t, err, "shop: a cursor that is not of this store")
}

// A store of two files has two rows of a key: the first that lives is the entry.
func TestPageHasAKeyOnce(t *testing.T) {
	t.Parallel()
	row := func(key, token string, over int64) *rowstore.Row {
		return &rowstore.Row{Key: []byte(key), Token: []byte(token), Over: over}
	}
	read := func(context.Context, []byte, int, bool) ([]*rowstore.Row, error) {
		return []*rowstore.Row{row("a", "1", 1), row("a", "2", 1), row("b", "1", 0), row("b", "2", 1)}, nil
	}
	page, _, err := rowstore.Page(t.Context(), "shop", "", 10, nil, read)
	require.NoError(t, err)
	require.Len(t, page, 2)
	require.Equal(t, []string{"a", "1", "b", "2"}, []string{page[0].Key, page[0].Token, page[1].Key, page[1].Token})
}
