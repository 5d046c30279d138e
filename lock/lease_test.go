package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
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

// A claim asks for 5 s, or four budgets, so that a process which is killed keeps no caller out
// for longer. A renewal asks for the whole of WithLease.
func TestFirstLease(t *testing.T) {
	t.Parallel()
	const fullLease = 30 * time.Second
	for name, tt := range map[string]struct {
		opts    []lock.Option
		process bool // the store ends with the process
		once    bool
		first   time.Duration
		renewed time.Duration
	}{
		"lock":             {first: 5 * time.Second, renewed: fullLease},
		"long budget":      {opts: []lock.Option{lock.WithBudget(2 * time.Second)}, first: 8 * time.Second, renewed: fullLease},
		"long hold":        {opts: []lock.Option{lock.WithMaxHold(time.Hour)}, first: 5 * time.Second, renewed: fullLease},
		"shortest hold":    {opts: []lock.Option{lock.WithMaxHold(fullLease)}, first: 5 * time.Second, renewed: fullLease - 5*time.Second/3},
		"short lease":      {opts: []lock.Option{lock.WithLease(3 * time.Second)}, first: 3 * time.Second, renewed: 3 * time.Second},
		"in this process":  {process: true, first: fullLease, renewed: fullLease},
		"remembered a day": {once: true, first: fullLease, renewed: fullLease},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory := memstore.New()
				var s lock.Store = memory
				if !tt.process {
					away := fault.New()
					away.Serve(memory)
					s = away
				}
				l := lock.New(s, append([]lock.Option{lock.WithLogger(quiet), lock.WithLease(fullLease)}, tt.opts...)...)
				name := key
				if tt.once {
					name = keytext.Record(key)
				}
				left := func() time.Duration {
					e := must.Entry(t)(memory.Get(t.Context(), name))
					return e.Left
				}
				work := func() {
					require.Equal(t, tt.first, left())
					time.Sleep(tt.first / 3)
					synctest.Wait()
					require.Equal(t, tt.renewed, left())
				}
				var err error
				if tt.once {
					_, _, err = l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) { work(); return nil, nil })
				} else {
					err = l.Do(t.Context(), key, func(context.Context) error { work(); return nil })
				}
				require.NoError(t, err)
				require.NoError(t, l.Close(t.Context()))
			})
		})
	}
}

// Work whose lease was renewed once survives the same outages as with a whole lease from the start.
// Younger work loses its lease, and is notified before the lease ends in the store.
func TestOutagesOfYoungAndOldLeases(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
