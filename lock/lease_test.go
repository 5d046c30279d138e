package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestFromContext(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		_, ok := lock.FromContext(t.Context())
		require.False(t, ok)
		require.NoError(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			outer, ok := lock.FromContext(ctx)
			require.True(t, ok)
			_, fenced := outer.Fence()
			require.False(t, fenced)
			return l.Do(ctx, lock.Key("order", "7"), func(ctx context.Context) error {
				inner, ok := lock.FromContext(context.WithoutCancel(ctx))
				require.True(t, ok)
				require.NotSame(t, outer, inner)
				return nil
			})
		}))
	})
}

func TestNilLease(t *testing.T) {
	var e *lock.Lease
	require.NoError(t, e.Release(t.Context()))
	require.ErrorIs(t, e.Settle(t.Context(), nil, time.Second), lock.ErrLost)
	require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
	require.NoError(t, e.Context().Err())
	_, ok := e.Fence()
	require.False(t, ok)
}

func TestFencesGrow(t *testing.T) {
	l := lock.New(memstore.New(), lock.WithFencing())
	last := int64(0)
	for range 1000 {
		require.NoError(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			e, _ := lock.FromContext(ctx)
			fence, ok := e.Fence()
			require.True(t, ok)
			require.Greater(t, fence, last)
			last = fence
			return nil
		}))
	}
	require.NoError(t, l.Close(t.Context()))
}
