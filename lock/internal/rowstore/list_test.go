package rowstore_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

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
