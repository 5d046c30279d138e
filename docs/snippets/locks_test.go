package snippets_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func rebuild(ctx context.Context, locker *lock.Locker, index string, build func(ctx context.Context) error) error {
	err := locker.Do(ctx, lock.Key("index", index), build) // build gets a context that ends with the lock
	var refused *lock.RefusedError
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("%s is being rebuilt, ask again in %v: %w", index, refused.Entry.Left, err) // 0: not known
	case errors.Is(err, lock.ErrUnavailable):
		return fmt.Errorf("Redis does not answer, and %s was not touched: %w", index, err)
	}
	return err
}

// remind sends at most one reminder to a user in an hour.
func remind(ctx context.Context, locker *lock.Locker, user string, send func(ctx context.Context) error) error {
	lease, err := locker.Acquire(ctx, lock.Key("reminder", user))
	if err != nil {
		return err // lock.ErrSettled within the hour, lock.ErrHeld while another process sends
	}
	defer func() { _ = lease.Release(ctx) }() // does nothing after Settle
	if err := send(lease.Context()); err != nil {
		return err
	}
	return lease.Settle(ctx, nil, time.Hour) // stays taken, although this process has left
}

// The code of the page returns the holder's time left, and a lock that stays until its expiry.
func TestLocksWithoutHTTP(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, ctx := memstore.New(), t.Context()
		locker, another := newLocker(t, store), newLocker(t, store)
		err := rebuild(ctx, locker, "orders", func(ctx context.Context) error {
			err := rebuild(ctx, another, "orders", func(context.Context) error { return errors.New("a second one runs") })
			require.ErrorIs(t, err, lock.ErrHeld)
			require.ErrorContains(t, err, "ask again in 30s")
			return nil
		})
		require.NoError(t, err)

		sent := 0
		send := func(context.Context) error { sent++; return nil }
		require.Error(t, remind(ctx, locker, "42", func(context.Context) error { return errors.New("away") }))
		require.NoError(t, remind(ctx, locker, "42", send), "a failed one can be sent again at once")
		require.ErrorIs(t, remind(ctx, locker, "42", send), lock.ErrSettled)
		time.Sleep(time.Hour)
		require.NoError(t, remind(ctx, locker, "42", send))
		require.Equal(t, 2, sent)
	})
}
