package memstore_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestPageRefuses(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	ended, end := context.WithCancel(t.Context())
	end()
	_, _, err := store.Page(ended, "", 50, nil)
	require.ErrorIs(t, err, context.Canceled)
	for _, cursor := range []string{"x", "64:", "-1:", "1", "9223372036854775808:"} {
		_, _, err := store.Page(t.Context(), cursor, 50, nil)
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
