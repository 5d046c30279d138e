package sqlshop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// UseTable makes every statement of a store whose table, of this name, is new. It returns the first fence.
func UseTable(t *testing.T, s Store, name string) (fence int64) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, s.Migrate(ctx), name)
	require.NoError(t, s.Check(ctx), name)
	e, err := s.Claim(ctx, name, lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Fenced: true})
	require.NoError(t, err, name)
	require.Equal(t, lock.Held, e.State)
	require.Positive(t, e.Fence)
	fence = e.Fence
	ok, err := s.Renew(ctx, name, lock.Claim{Token: "t", Lease: time.Minute})
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = s.Settle(ctx, name, lock.Claim{Token: "t"}, []byte(name), time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	page, _, err := s.Page(ctx, "", 10, nil)
	require.NoError(t, err)
	require.Len(t, page, 1, name)
	require.Equal(t, name, page[0].Key)
	for e, err := range s.List(ctx) {
		require.NoError(t, err)
		require.Equal(t, name, string(e.Receipt))
	}
	_, err = s.Claim(ctx, name, lock.Claim{Token: "u", Replaces: "t", Attempt: 2, Lease: time.Minute, Fenced: true})
	require.NoError(t, err)
	ok, err = s.Release(ctx, name, lock.Claim{Token: "t"})
	require.NoError(t, err)
	require.False(t, ok)
	ok, err = s.Forget(ctx, name, "t")
	require.NoError(t, err)
	require.True(t, ok)
	if sweeper, is := s.(interface {
		Sweep(ctx context.Context, limit int) (int, error)
	}); is {
		_, err = sweeper.Sweep(ctx, 10)
		require.NoError(t, err)
	}
	l := lock.New(s, lock.WithTransaction(), lock.WithBudget(10*time.Second))
	defer CloseLocker(t, l)
	for range 2 {
		receipt, _, err := l.Once(ctx, name, nil, func(context.Context) ([]byte, error) { return []byte(name), nil })
		require.NoError(t, err)
		require.Equal(t, name, string(receipt))
	}
	return fence
}

// TestMigrations lets many processes migrate at once, and again, while others use the table. open
// returns a store over one new database, which has not migrated.
func TestMigrations(t *testing.T, open func(t *testing.T) Store) {
	t.Helper()
	stores := make([]Store, 8)
	for i := range stores {
		stores[i] = open(t)
	}
	each := func(do func(i int, s Store) error) {
		errs := make([]error, len(stores))
		var all sync.WaitGroup
		for i, s := range stores {
			all.Go(func() { errs[i] = do(i, s) })
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
	for range 3 {
		each(func(_ int, s Store) error { return s.Migrate(t.Context()) })
	}
	require.NoError(t, stores[0].Check(t.Context()))
	each(func(i int, s Store) error {
		err := lock.ErrNotApplied
		for end := time.Now().Add(time.Minute); errors.Is(err, lock.ErrNotApplied) && time.Now().Before(end); { // by a busy machine
			_, err = s.Claim(t.Context(), fmt.Sprint(i), lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute})
		}
		return err
	})
	require.NoError(t, stores[1].Migrate(t.Context()))
	for i := range stores {
		e, err := stores[2].Get(t.Context(), fmt.Sprint(i))
		require.NoError(t, err)
		require.Equal(t, "t", e.Token, "the earlier entry is unchanged")
	}
}

// TestClosed makes calls of a store that was closed before it was used.
func TestClosed(t *testing.T, s Store) {
	t.Helper()
	s.Close()
	s.Close()
	_, get := s.Get(t.Context(), "k")
	_, claim := s.Claim(t.Context(), "k", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute})
	_, _, begin := s.Begin(t.Context(), "k", "t")
	for _, err := range []error{get, claim, begin, s.Check(t.Context())} {
		require.ErrorIs(t, err, lock.ErrNotApplied)
		require.ErrorContains(t, err, "the store was closed")
	}
}
