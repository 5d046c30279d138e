package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

func TestSlots(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"export=7#1", "export=7#2", "export=7#3"}, lock.Slots("export", 3, "7"))
	require.Equal(t, []string{"import#1"}, lock.Slots("import", 1))
	require.NotContains(t, lock.Slots("export", 3, "7"), lock.Key("export", "7#2"), "a value cannot name a slot")
	for _, n := range []int{-1, 0, 65} {
		require.Panics(t, func() { lock.Slots("export", n) })
	}
	require.Len(t, lock.Slots("export", 64), 64)
}

func acquiredAny(t *testing.T, l *lock.Locker, keys []string) *lock.Lease {
	t.Helper()
	e, err := l.AcquireAny(t.Context(), keys)
	require.NoError(t, err)
	return e
}

// A free slot is found for any number, and for any process that has the others.
func TestAnyFindsTheFreeSlot(t *testing.T) {
	slots := lock.Slots("export", 3)
	for _, where := range []string{"this process", "another process"} {
		for _, free := range slots {
			bubbleCase(t, where+" "+free, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				var seen events
				l := open()
				other := l
				if where == "another process" {
					other = open()
				}
				for _, key := range slots {
					if key != free {
						lease := acquired(t, other, key)
						defer func() { require.NoError(t, lease.Release(t.Context())) }()
					}
				}
				claims := s.Count(fault.Claim)
				for range 10 {
					require.NoError(t, l.With(lock.WithObserver(seen.observe)).DoAny(t.Context(), slots, func(ctx context.Context, key string) error {
						lease, ok := lock.FromContext(ctx)
						require.True(t, ok)
						require.Equal(t, []string{free, free}, []string{key, lease.Key()})
						return nil
					}))
				}
				require.Zero(t, seen.count(lock.EventRefused), "a slot that is taken is no refusal")
				if where == "this process" {
					require.Equal(t, 10, s.Count(fault.Claim)-claims, "the local table says which are free")
				}
			})
		}
	}
}

// A refusal has the shortest time left of all slots, and is one event.
func TestAnyRefusesWithTheShortestTimeLeft(t *testing.T) {
	slots := lock.Slots("export", 3, "7")
	for name, tt := range map[string]struct {
		cooldowns []time.Duration // of the first slots; the others are held
		reason    error
		left      time.Duration
	}{
		"all held":        {nil, lock.ErrHeld, lease - 20*time.Millisecond},
		"one cools down":  {[]time.Duration{time.Second}, lock.ErrHeld, time.Second},
		"all cool down":   {[]time.Duration{time.Hour, time.Second, time.Minute}, lock.ErrSettled, time.Second},
		"a long cooldown": {[]time.Duration{time.Hour}, lock.ErrHeld, lease - 10*time.Millisecond},
	} {
		bubbleCase(t, name, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
			var seen events
			l, other := open(lock.WithObserver(seen.observe)), open()
			for i, key := range slots {
				held := acquired(t, other, key)
				if i < len(tt.cooldowns) {
					require.NoError(t, held.Settle(t.Context(), nil, tt.cooldowns[i]))
					continue
				}
				defer func() { require.NoError(t, held.Release(t.Context())) }()
				if i < 2 {
					time.Sleep(10 * time.Millisecond)
				}
			}
			err := l.DoAny(t.Context(), slots, nil)
			var refusal *lock.RefusedError
			require.ErrorAs(t, err, &refusal)
			require.ErrorIs(t, err, tt.reason)
			require.Contains(t, slots, refusal.Entry.Key)
			require.InDelta(t, tt.left, refusal.Entry.Left, float64(10*time.Millisecond))
			require.Len(t, seen.seen, 1)
			require.Equal(t, "export", seen.only(t, lock.EventRefused).Name)
		})
	}
}

// A search that waits for the pending claim of another caller is refused as that claim is.
func TestAnyBehindAPendingClaimHasItsRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, held := open(), acquired(t, open(), key)
		s.Next(fault.Claim, fault.Slow(budget/2))
		pending := make(chan error)
		go func() { pending <- l.Do(t.Context(), key, nil) }()
		time.Sleep(time.Millisecond)
		_, err := l.AcquireAny(t.Context(), []string{key})
		var refusal *lock.RefusedError
		require.ErrorAs(t, err, &refusal)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, key, refusal.Entry.Key)
		require.Positive(t, refusal.Entry.Left)
		require.ErrorIs(t, <-pending, lock.ErrHeld)
		require.NoError(t, held.Release(t.Context()))
	})
}

func TestLineForAnyIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, slots := open(lock.WithWait(10*time.Second)), lock.Slots("export", 3)
		granted := 0
		for _, err := range meet(1000, func(int) error {
			began := time.Now()
			err := l.DoAny(t.Context(), slots, func(context.Context, string) error {
				time.Sleep(time.Millisecond)
				return nil
			})
			require.True(t, err == nil || began.Equal(time.Now()))
			return err
		}) {
			if err == nil {
				granted++
				continue
			}
			require.ErrorIs(t, err, lock.ErrHeld)
		}
		require.GreaterOrEqual(t, granted, 3*64)
		require.LessOrEqual(t, granted, 3*64+4)
	})
}

// Without the store, at most as many callers of a process run as there are slots.
func TestAnyFailsOpen(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, slots := open(lock.WithFailOpen()), lock.Slots("export", 2)
		s.Every(fault.HangRequest)
		var held []*lock.Lease
		for range 2 {
			e := acquiredAny(t, l, slots)
			_, protected := lock.FromContext(e.Context())
			require.False(t, protected)
			held = append(held, e)
		}
		require.ErrorIs(t, l.DoAny(t.Context(), slots, nil), lock.ErrHeld)
		for _, e := range held {
			require.NoError(t, e.Release(t.Context()))
		}
		s.Every(nil)
	})
}

// The first of a line claims, and the store is silent: the callers behind it get its result, after one budget.
func TestOutageOfALineTakesOneBudget(t *testing.T) {
	for want, opts := range map[error][]lock.Option{lock.ErrUnavailable: nil, nil: {lock.WithFailOpen()}} {
		bubbleCase(t, fmt.Sprint("error ", want), func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l, slots, began := open(append(opts, lock.WithWait(4*budget))...), lock.Slots("export", 10), time.Now()
			s.Every(fault.HangRequest, fault.Claim)
			requireEach(t, want, meet(len(slots), func(int) error {
				e, err := l.AcquireAny(t.Context(), slots)
				require.Equal(t, budget, time.Since(began))
				time.Sleep(time.Millisecond)
				return errors.Join(err, e.Release(t.Context()))
			}))
			s.Every(nil)
			require.NoError(t, l.DoAny(t.Context(), slots, func(ctx context.Context, _ string) error {
				_, protected := lock.FromContext(ctx)
				require.True(t, protected, "the next caller asks the store again")
				return nil
			}))
		})
	}
}

// The wait of a caller ends while the first of the line has no answer yet. This is not a refusal.
func TestWaitBehindAPendingSearchIsNoRefusal(t *testing.T) {
	observed(t, func(t *testing.T, s *fault.Store, l *lock.Locker, seen *events) {
		s.Every(fault.HangRequest, fault.Claim)
		var first sync.WaitGroup
		first.Go(func() { require.ErrorIs(t, l.DoAny(t.Context(), []string{"a"}, nil), lock.ErrUnknown) })
		time.Sleep(time.Millisecond)
		_, err := l.AcquireAny(t.Context(), []string{"a"})
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, 1, seen.count(lock.EventUnavailable))
		require.Zero(t, seen.count(lock.EventRefused))
		first.Wait()
	}, lock.WithWait(budget/3))
}

// A distant store answers in time that each of 64 slots is held. Together, the answers take longer than
// a budget. They are no outage, so no work runs without a slot, and a wait goes on until one is free.
func TestAnyOverADistantStore(t *testing.T) {
	for name, tt := range map[string]struct {
		opts []lock.Option
		away time.Duration
		want error
		took time.Duration
	}{
		"refused":              {nil, budget / 30, lock.ErrHeld, 64 * budget / 30},
		"refused, farther":     {nil, budget / 4, lock.ErrHeld, 64 * budget / 4},
		"fails open":           {[]lock.Option{lock.WithFailOpen()}, budget / 30, lock.ErrHeld, 64 * budget / 30},
		"waits":                {[]lock.Option{lock.WithWait(time.Minute)}, budget / 30, nil, 2 * time.Second},
		"waits and fails open": {[]lock.Option{lock.WithWait(time.Minute), lock.WithFailOpen()}, budget / 30, nil, 2 * time.Second},
		"waits in vain":        {[]lock.Option{lock.WithWait(time.Millisecond)}, budget / 30, lock.ErrHeld, 64 * budget / 30},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l, other, slots := open(tt.opts...), open(), lock.Slots("export", 64)
			var held []*lock.Lease
			for _, key := range slots {
				e := acquired(t, other, key)
				held = append(held, e)
			}
			s.Every(fault.Slow(tt.away), fault.Claim)
			began := time.Now()
			if tt.want == nil {
				time.AfterFunc(time.Second, func() { _ = held[17].Release(context.Background()) })
			}
			e, err := l.AcquireAny(t.Context(), slots)
			require.ErrorIs(t, err, tt.want)
			require.LessOrEqual(t, time.Since(began), tt.took)
			if tt.want == nil {
				_, protected := lock.FromContext(e.Context())
				require.True(t, protected)
				require.Equal(t, slots[17], e.Key())
				require.NoError(t, e.Release(t.Context()))
			}
			s.Every(nil, fault.Claim)
			for _, e := range held {
				require.NoError(t, e.Release(t.Context()))
			}
		})
	}
}

func TestAnyDoesNotWaitForACooldown(t *testing.T) {
	solo(t, func(t *testing.T, _ *fault.Store, l *lock.Locker) {
		e := acquiredAny(t, l, []string{"a"})
		require.NoError(t, e.Settle(t.Context(), nil, time.Minute))
		began := time.Now()
		require.ErrorIs(t, l.DoAny(t.Context(), []string{"a"}, nil), lock.ErrSettled)
		require.Zero(t, time.Since(began))
	}, lock.WithWait(time.Second))
}

// A key with a NUL in it is one key, and no line of two.
func TestLineOfAKeyWithASeparator(t *testing.T) {
	solo(t, func(t *testing.T, _ *fault.Store, l *lock.Locker) {
		for _, key := range []string{"a", "b"} {
			e := acquired(t, l, key)
			defer func() { require.NoError(t, e.Release(t.Context())) }()
		}
		var waiter sync.WaitGroup
		waiter.Go(func() { require.ErrorIs(t, l.DoAny(t.Context(), []string{"a", "b"}, nil), lock.ErrHeld) })
		time.Sleep(time.Millisecond)
		began := time.Now()
		require.NoError(t, l.DoAny(t.Context(), []string{"a\x00b"}, func(context.Context, string) error { return nil }))
		require.Zero(t, time.Since(began))
		waiter.Wait()
	}, lock.WithWait(time.Second))
}

// A caller that has left, and a closed Locker, get their own errors, although no key is claimed.
func TestAnyOfHeldKeysAfterTheEnd(t *testing.T) {
	solo(t, func(t *testing.T, _ *fault.Store, l *lock.Locker) {
		e := acquired(t, l, "a")
		left, leave := context.WithCancel(t.Context())
		leave()
		require.ErrorIs(t, l.DoAny(left, []string{"a"}, nil), context.Canceled)
		go l.Close(context.Background())
		synctest.Wait()
		require.ErrorIs(t, l.DoAny(t.Context(), []string{"a"}, nil), lock.ErrClosed)
		require.NoError(t, e.Release(t.Context()))
	})
}
