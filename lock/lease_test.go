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

func TestWithSharesEverything(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		slow := l.With(lock.WithMaxHold(time.Hour))
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		_, err = slow.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, 1, s.Count(fault.Claim))
		require.NoError(t, e.Release(t.Context()))
		require.NoError(t, slow.Close(t.Context()))
		_, err = l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrClosed)
	})
}

func TestKeyComposesInjectively(t *testing.T) {
	require.Equal(t, "user=42", lock.Key("user", "42"))
	require.Equal(t, "order=7&eu", lock.Key("order", "7", "eu"))
	require.Equal(t, "user=a~26b", lock.Key("user", "a&b"))
	require.NotEqual(t, lock.Key("user", "a", "b"), lock.Key("user", "a&b"))
	require.NotEqual(t, lock.Key("a=b", "c"), lock.Key("a", "b=c"))
}

func TestOptionsThatContradict(t *testing.T) {
	for name, open := range map[string]func(){
		"nil store":        func() { lock.New(nil) },
		"short lease":      func() { lock.New(memstore.New(), lock.WithLease(900*time.Millisecond)) },
		"hold below lease": func() { lock.New(memstore.New(), lock.WithMaxHold(time.Second)) },
		"with, later":      func() { lock.New(memstore.New()).With(lock.WithBudget(time.Minute)) },
		"zero lease":       func() { lock.WithLease(0) },
		"negative budget":  func() { lock.WithBudget(-1) },
		"nil observer":     func() { lock.WithObserver(nil) },
		"nil logger":       func() { lock.WithLogger(nil) },
		"nil option":       func() { lock.New(memstore.New(), nil) },
		"hold of no time":  func() { lock.WithMaxHold(0) },
	} {
		t.Run(name, func(t *testing.T) { require.Panics(t, open) })
	}
}
