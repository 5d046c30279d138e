package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// Page makes an inspected node list in steps. It fails as the node's List does.
func (n *inspected) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) ([]lock.Entry, string, error) {
	if n.err != nil {
		return nil, "", n.err
	}
	return n.server().(pager).Page(ctx, cursor, limit, match)
}

// The pages have what List yields, whichever minority of the nodes is down.
func TestQuorumPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes, q := inspectedFleet(3)
		put := func(key string, on ...int) {
			t.Helper()
			for _, i := range on {
				_, err := nodes[i].server().Claim(t.Context(), key, lock.Claim{Token: "a", Lease: time.Hour})
				require.NoError(t, err)
			}
		}
		for i := range 100 {
			put(fmt.Sprint("all=", i), 0, 1, 2)
			put(fmt.Sprint("majority=", i), 1, 2)
			put(fmt.Sprint("minority=", i), i%3)
		}
		put("cool-down", 1, 2)
		for _, i := range []int{1, 2} {
			_, err := nodes[i].server().Settle(t.Context(), "cool-down", "a", nil, time.Hour)
			require.NoError(t, err)
		}

		for _, down := range []int{-1, 0, 1, 2} {
			if down >= 0 {
				nodes[down].err = errors.New("down")
			}
			want, err := listAll(t, q)
			require.NoError(t, err)
			got := make(map[string]string)
			found, most := pages(t, q.(pager), 20, nil)
			for key, e := range found {
				require.Empty(t, e.Receipt)
				got[key] = e.State.String() + ":" + e.Token
			}
			require.Equal(t, want, got, "down: %d", down)
			require.LessOrEqual(t, most, 20)
			if down >= 0 {
				nodes[down].err = nil
			}
		}
		one, _ := pages(t, q.(pager), 20, func(key string) bool { return key == "all=7" })
		require.Len(t, one, 1)

		// A page of entries that an earlier node has is empty, and the next goes on.
		page, next, err := q.(pager).Page(t.Context(), "", 1000, func(key string) bool { return key == "all=7" })
		require.NoError(t, err)
		require.Len(t, page, 1)
		page, next, err = q.(pager).Page(t.Context(), next, 1000, func(key string) bool { return key == "all=7" })
		require.NoError(t, err)
		require.Empty(t, page)
		require.NotEmpty(t, next)

		nodes[0].err, nodes[1].err = errors.New("down"), errors.New("down too")
		_, next, err = q.(pager).Page(t.Context(), "", 20, nil)
		require.NoError(t, err)
		_, _, err = q.(pager).Page(t.Context(), next, 20, nil)
		require.ErrorContains(t, err, "2 of 3 nodes did not list")
		for _, cursor := range []string{"x", "3.0:", "0.-1:", "-1.0:", "1", "1.0"} {
			_, _, err := q.(pager).Page(t.Context(), cursor, 20, nil)
			require.ErrorIs(t, err, lock.ErrNotApplied, cursor)
		}
		time.Sleep(time.Second)
	})
}

// What lists in no steps below, lists in none above.
func TestPagesOverAStoreWithout(t *testing.T) {
	t.Parallel()
	listing := func() lock.Store {
		return struct {
			lock.Store
			lock.Inspector
		}{lock.NewMemory(), lock.NewMemory().(lock.Inspector)}
	}
	for name, store := range map[string]lock.Store{
		"quorum": lock.NewQuorum([]lock.Store{listing(), listing(), listing()}),
		"sealed": lock.NewSealed(listing(), gcm(t, 1)),
	} {
		_, _, err := store.(pager).Page(t.Context(), "", 20, nil)
		require.ErrorIs(t, err, errors.ErrUnsupported, name)
	}
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
