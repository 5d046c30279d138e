package memstore_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// pages reads all pages, and returns their entries by key, and the size of the
// largest page.
func pages(t *testing.T, p lock.Inspector, limit int, match func(key string) bool) (found map[string]lock.Entry, most int) {
	t.Helper()
	found = make(map[string]lock.Entry)
	for cursor, n := "", 0; ; n++ {
		require.Less(t, n, 1_000_000, "it does not end")
		page, next, err := p.Page(t.Context(), cursor, limit, match)
		require.NoError(t, err)
		for _, e := range page {
			found[e.Key] = e
		}
		most = max(most, len(page))
		if next == "" {
			return found, most
		}
		cursor = next
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	for i := range 10_000 {
		must.Entry(t)(store.Claim(t.Context(), fmt.Sprint("user=", i), lock.Claim{Token: "a", Lease: time.Hour}))
	}
	var p lock.Inspector = store
	for _, limit := range []int{1, 50, 1000} {
		found, most := pages(t, p, limit, nil)
		require.Len(t, found, 10_000)
		require.LessOrEqual(t, most, limit)
	}
	found, _ := pages(t, p, 50, func(key string) bool { return strings.HasSuffix(key, "=42") })
	require.Len(t, found, 1)

	ended, end := context.WithCancel(t.Context())
	end()
	_, _, err := p.Page(ended, "", 50, nil)
	require.ErrorIs(t, err, context.Canceled)
	for _, cursor := range []string{"x", "64:", "-1:", "1", "9223372036854775808:"} {
		_, _, err := p.Page(t.Context(), cursor, 50, nil)
		require.ErrorIs(t, err, lock.ErrNotApplied, cursor)
	}
}

// Pages of any size are equal to the pages of a sorted copy of each shard, in order, while entries
// before and after the cursor come and go.
func TestPagesAreThoseOfASortedShard(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	store := memstore.New()
	all := memstore.KeysOfOneShard(store, 300)
	for _, key := range all {
		put(t, store, key, memoryClaim("a", time.Hour))
	}
	slices.Sort(all)
	for _, limit := range []int{1, 2, 7, 149, 150, 299, 300, 301, math.MaxInt} {
		var found []string
		for cursor, first := "", true; first || cursor != ""; first = false {
			page, next, err := store.Page(t.Context(), cursor, limit, nil)
			require.NoError(t, err)
			want := all[len(found):min(len(found)+min(limit, len(all)), len(all))]
			got := make([]string, len(page))
			for i, e := range page {
				got[i] = e.Key
			}
			require.Equal(t, want, got, "limit %d", limit)
			found, cursor = append(found, got...), next
			if next == "" {
				continue
			}
			gone := all[r.IntN(len(found))] // before the cursor
			must.Yes(t)(store.Release(t.Context(), gone, lock.Claim{Token: "a"}))
			put(t, store, gone, memoryClaim("a", time.Hour))
		}
		require.Equal(t, all, found)
	}
}
