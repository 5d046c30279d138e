package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestNilLease(t *testing.T) {
	var e *lock.Lease
	require.NoError(t, e.Release(t.Context()))
	require.ErrorIs(t, e.Settle(t.Context(), nil, time.Second), lock.ErrLost)
	require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
	require.NoError(t, e.Context().Err())
	_, ok := e.Fence()
	require.False(t, ok)
}

// A claim asks for 5 s, or four budgets, so that a process which is killed keeps no caller out
// for longer. A renewal asks for the whole of WithLease.
func TestFirstLease(t *testing.T) {
	t.Parallel()
	const fullLease = 30 * time.Second
	away := func(s *memstore.Store) lock.Store {
		network := fault.New()
		network.Serve(s)
		return network
	}
	do := func(ctx context.Context, l *lock.Locker, work func()) error {
		return l.Do(ctx, key, func(context.Context) error { work(); return nil })
	}
	once := func(ctx context.Context, l *lock.Locker, work func()) error {
		_, _, err := l.Once(ctx, key, print1, func(context.Context) ([]byte, error) { work(); return nil, nil })
		return err
	}
	for name, tt := range map[string]struct {
		opts           []lock.Option
		as             func(*memstore.Store) lock.Store
		do             func(ctx context.Context, l *lock.Locker, work func()) error
		first, renewed time.Duration
	}{
		"lock":             {as: away, do: do, first: 5 * time.Second, renewed: fullLease},
		"long budget":      {[]lock.Option{lock.WithBudget(2 * time.Second)}, away, do, 8 * time.Second, fullLease},
		"long hold":        {[]lock.Option{lock.WithMaxHold(time.Hour)}, away, do, 5 * time.Second, fullLease},
		"shortest hold":    {[]lock.Option{lock.WithMaxHold(fullLease)}, away, do, 5 * time.Second, fullLease - 5*time.Second/3},
		"short lease":      {[]lock.Option{lock.WithLease(3 * time.Second)}, away, do, 3 * time.Second, 3 * time.Second},
		"in this process":  {as: func(s *memstore.Store) lock.Store { return s }, do: do, first: fullLease, renewed: fullLease},
		"remembered a day": {as: away, do: once, first: fullLease, renewed: fullLease},
	} {
		t.Run(name, virtual.Test(func(t *testing.T) {
			memory := memstore.New()
			l := fault.Locker(t, tt.as(memory), append([]lock.Option{lock.WithBudget(time.Second), lock.WithLease(fullLease)}, tt.opts...)...)
			left := func() (left time.Duration) {
				for e, err := range memory.List(t.Context()) {
					require.NoError(t, err)
					left = e.Left
				}
				return left
			}
			require.NoError(t, tt.do(t.Context(), l, func() {
				require.Equal(t, tt.first, left())
				time.Sleep(tt.first / 3)
				synctest.Wait()
				require.Equal(t, tt.renewed, left())
			}))
		}))
	}
}

// Work whose lease was renewed once survives the same outages as with a whole lease from the start.
// Younger work loses its lease, and is notified before the lease ends in the store.
func TestOutagesOfYoungAndOldLeases(t *testing.T) {
	for name, tt := range map[string]struct{ age, outage, lives time.Duration }{
		"young, short": {time.Second, 3 * time.Second, 0},
		"young":        {time.Second, 10 * time.Second, 5*time.Second - 52*time.Millisecond},
		"old":          {2 * time.Second, 28 * time.Second, 0},
		"older":        {time.Minute, 18 * time.Second, 0},
	} {
		bubbleOverCase(t, name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			began := time.Now()
			e := acquired(t, open(lock.WithLease(30*time.Second), lock.WithMaxHold(time.Hour)), key)
			time.Sleep(tt.age)
			s.Every(fault.HangRequest)
			ended := make(chan time.Duration, 1)
			stop := context.AfterFunc(e.Context(), func() { ended <- time.Since(began) })
			time.Sleep(tt.outage)
			s.Every(nil)
			time.Sleep(2 * time.Second)
			if tt.lives == 0 {
				require.NoError(t, e.Context().Err())
				stop()
				require.NoError(t, e.Release(t.Context()))
				return
			}
			require.ErrorIs(t, context.Cause(e.Context()), lock.ErrLost)
			require.Equal(t, tt.lives, <-ended)
			require.ErrorIs(t, e.Release(t.Context()), lock.ErrLost)
		})
	}
}

// Extend has asked for the whole lease, so the next renewal is a third of the whole lease away.
func TestExtendPutsOffTheRenewal(t *testing.T) {
	for name, tt := range map[string]struct {
		hold time.Duration
		then int // renewals, Extend among them
	}{
		"long hold": {time.Hour, 2},
		"all of it": {30 * time.Second, 1},
	} {
		bubbleOverCase(t, name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			e := acquired(t, open(lock.WithLease(30*time.Second), lock.WithMaxHold(tt.hold)), key)
			time.Sleep(time.Second)
			require.NoError(t, e.Extend(t.Context()))
			time.Sleep(9 * time.Second)
			require.Equal(t, 1, s.Count(fault.Renew))
			time.Sleep(2 * time.Second)
			require.Equal(t, tt.then, s.Count(fault.Renew))
			require.NoError(t, e.Release(t.Context()))
		})
	}
}
