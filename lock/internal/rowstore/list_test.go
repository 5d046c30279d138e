package rowstore_test

import (
	"bytes"
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
	return func(after []byte, limit int) (live []lock.Entry, last []byte, more bool, err error) {
		read := 0
		for i := range n {
			key := fmt.Appendf(nil, "%06d", i)
			if bytes.Compare(key, after) <= 0 || read == limit {
				continue
			}
			read++
			if last = key; i%3 != 2 {
				live = append(live, lock.Entry{Key: string(key)})
			}
		}
		return live, last, read == limit, nil
	}
}

func TestListAndPagesHaveEachLiveEntryOnce(t *testing.T) {
	t.Parallel()
	const n = 1501
	var listed, paged []string
	for e, err := range rowstore.List(rowsOf(n)) {
		require.NoError(t, err)
		listed = append(listed, e.Key)
	}
	require.Len(t, listed, n-n/3)
	require.True(t, slices.IsSorted(listed))
	odd := func(key string) bool { return key[len(key)-1]%2 == 1 }
	for cursor, more := "", true; more; more = cursor != "" {
		page, next, err := rowstore.Page("shop", cursor, 7, odd, rowsOf(n))
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
	for e, err := range rowstore.List(rowsOf(10)) {
		require.NoError(t, err)
		require.Equal(t, "000000", e.Key)
		break
	}
	failure := errors.New("no server")
	fails := func([]byte, int) ([]lock.Entry, []byte, bool, error) { return nil, nil, true, failure }
	times := 0
	for _, err := range rowstore.List(fails) {
		require.ErrorIs(t, err, failure)
		times++
	}
	require.Equal(t, 1, times)
	_, _, err := rowstore.Page("shop", "", 1, nil, fails)
	require.ErrorIs(t, err, failure)
	_, _, err = rowstore.Page("shop", "no cursor", 1, nil, fails)
	require.ErrorIs(t, err, lock.ErrNotApplied)
	require.ErrorContains(t, err, "shop: a cursor that is not of this store")
}
