package lock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
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

func TestAnyRefusesKeysThatNoLockCanHave(t *testing.T) {
	t.Parallel()
	l := lockerOver(t, memstore.New())
	for _, keys := range [][]string{nil, {"a", ""}, {"once:1"}} {
		_, err := l.AcquireAny(t.Context(), keys)
		require.Error(t, err)
	}
}

// A free slot is found for any number, and for any process that has the others.
func TestAnyFindsTheFreeSlot(t *testing.T) {
	t.Parallel()
	slots := lock.Slots("export", 3)
	for _, where := range []string{"this process", "another process"} {
		for _, free := range slots {
			bubbleCase(t, where+" "+free, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				var kinds []lock.EventKind
				l := open(lock.WithObserver(func(_ context.Context, e lock.Event) { kinds = append(kinds, e.Kind) }))
				other := open()
				if where == "this process" {
					other = l
				}
				for _, key := range slots {
					if key != free {
						lease := acquired(t, other, key)
						defer func() { require.NoError(t, lease.Release(t.Context())) }()
					}
				}
				kinds, claims := nil, s.Count(fault.Claim)
				for range 10 {
					require.NoError(t, l.DoAny(t.Context(), slots, func(ctx context.Context, key string) error {
						require.Equal(t, free, key)
						lease, ok := lock.FromContext(ctx)
						require.True(t, ok)
						require.Equal(t, free, lease.Key())
						return nil
					}))
				}
				require.Equal(t, slices.Repeat([]lock.EventKind{lock.EventClaimed, lock.EventReleased}, 10), kinds, "a slot that is taken is no refusal")
				if where == "this process" {
					require.Equal(t, 10, s.Count(fault.Claim)-claims, "the local table says which are free")
				}
			})
		}
	}
}

// A refusal has the shortest time left of all slots, and is one event.
func TestAnyRefusesWithTheShortestTimeLeft(t *testing.T) {
	t.Parallel()
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
			var refused []lock.Event
			l, other := open(lock.WithObserver(func(_ context.Context, e lock.Event) { refused = append(refused, e) })), open()
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
			err := l.DoAny(t.Context(), slots, func(context.Context, string) error { panic("it is refused") })
			var refusal *lock.RefusedError
			require.ErrorAs(t, err, &refusal)
			require.ErrorIs(t, err, tt.reason)
			require.Contains(t, slots, refusal.Entry.Key)
			require.InDelta(t, tt.left, refusal.Entry.Left, float64(10*time.Millisecond))
			require.Len(t, refused, 1)
			require.Equal(t, lock.EventRefused, refused[0].Kind)
			require.Equal(t, "export", refused[0].Name)
		})
	}
}

// A search that waits for the pending claim of another caller is refused as that claim is.
func TestAnyBehindAPendingClaimHasItsRefusal(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, held := open(), acquired(t, open(), key)
		s.Next(fault.Claim, fault.Slow(budget/2))
		pending := make(chan error)
		go func() {
			_, err := l.Acquire(t.Context(), key)
			pending <- err
		}()
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

// Callers of one process that wait get their slots in order of arrival, at the moment at which
// one becomes free.
func TestAnyIsGrantedInOrderOfArrival(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		const work = 100 * time.Millisecond
		l, slots := open(lock.WithWait(time.Minute)), lock.Slots("export", 2, "7")
		began := time.Now()
		var mu sync.Mutex
		var order []int
		var callers sync.WaitGroup
		for i := range 20 {
			callers.Go(func() {
				require.NoError(t, l.DoAny(t.Context(), slots, func(context.Context, string) error {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					time.Sleep(work)
					return nil
				}))
			})
			time.Sleep(time.Millisecond)
		}
		callers.Wait()
		require.True(t, slices.IsSorted(order), "%v", order)
		require.InDelta(t, 10*work, time.Since(began), float64(50*time.Millisecond), "no slot is idle while a caller waits")
	})
}

// A slot that another process frees is found by the next poll.
func TestAnyWaitsForAnotherProcess(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		other, slots := open(), lock.Slots("export", 2)
		l := open(lock.WithWait(10*time.Second), lock.WithObserver(seen.observe))
		first, err := other.AcquireAny(t.Context(), slots)
		require.NoError(t, err)
		second, err := other.AcquireAny(t.Context(), slots)
		require.NoError(t, err)
		require.NotEqual(t, first.Key(), second.Key())
		time.AfterFunc(time.Second, func() { _ = second.Release(context.Background()) })
		got, err := l.AcquireAny(t.Context(), slots)
		require.NoError(t, err)
		require.Equal(t, second.Key(), got.Key())
		require.InDelta(t, 1250*time.Millisecond, seen.only(t, lock.EventClaimed).Waited, float64(300*time.Millisecond))
		require.NoError(t, got.Release(t.Context()))
		require.NoError(t, first.Release(t.Context()))
	})
}

// The wait of a caller in the line, and of the first in it, ends with its time, its context, and
// the Locker.
func TestEndOfAWaitForAny(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		stop func(l *lock.Locker, leave func())
		want error
		took time.Duration
	}{
		"time":    {func(*lock.Locker, func()) {}, lock.ErrHeld, 2 * time.Second},
		"context": {func(_ *lock.Locker, leave func()) { leave() }, context.Canceled, time.Second},
		"close":   {func(l *lock.Locker, _ func()) { go l.Close(context.Background()) }, lock.ErrClosed, time.Second},
	} {
		bubbleCase(t, name, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
			l, slots := open(lock.WithWait(2*time.Second)), lock.Slots("export", 2)
			var held []*lock.Lease
			for range 2 {
				e, err := l.AcquireAny(t.Context(), slots)
				require.NoError(t, err)
				held = append(held, e)
			}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			var waiters sync.WaitGroup
			for range 3 {
				waiters.Go(func() {
					began := time.Now()
					_, err := l.AcquireAny(ctx, slots)
					require.ErrorIs(t, err, end.want)
					require.InDelta(t, end.took, time.Since(began), float64(10*time.Millisecond))
				})
			}
			time.Sleep(time.Second)
			end.stop(l, leave)
			waiters.Wait()
			for _, e := range held {
				require.NoError(t, e.Release(t.Context()))
			}
		})
	}
}

// A caller whose wait ends behind another makes no call to the store.
func TestEndOfAWaitInTheLineForAny(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other, slots := open(lock.WithWait(2*time.Second)), open(), lock.Slots("export", 1)
		held, err := other.AcquireAny(t.Context(), slots)
		require.NoError(t, err)
		s.Every(fault.Slow(100*time.Millisecond), fault.Claim)
		var first sync.WaitGroup
		first.Go(func() {
			_, err := l.AcquireAny(t.Context(), slots)
			require.ErrorIs(t, err, lock.ErrHeld)
		})
		synctest.Wait()
		began := time.Now()
		_, err = l.AcquireAny(t.Context(), slots)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, 2*time.Second, time.Since(began))
		first.Wait()
		require.NoError(t, held.Release(t.Context()))
	})
}

// The line is bounded, as the queue of a key is.
func TestLineForAnyIsBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, slots := open(lock.WithWait(10*time.Second)), lock.Slots("export", 3)
		var refused, granted atomic.Int64
		var callers sync.WaitGroup
		for range 1000 {
			callers.Go(func() {
				began := time.Now()
				err := l.DoAny(t.Context(), slots, func(context.Context, string) error {
					time.Sleep(time.Millisecond)
					return nil
				})
				if err != nil {
					require.ErrorIs(t, err, lock.ErrHeld)
					require.Zero(t, time.Since(began))
					refused.Add(1)
					return
				}
				granted.Add(1)
			})
		}
		callers.Wait()
		require.GreaterOrEqual(t, granted.Load(), int64(3*64))
		require.LessOrEqual(t, granted.Load(), int64(3*64+4))
		require.Equal(t, int64(1000), refused.Load()+granted.Load())
	})
}

// Without the store, at most as many callers of a process run as there are slots.
func TestAnyFailsOpen(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, slots := open(lock.WithFailOpen()), lock.Slots("export", 2)
		s.Every(fault.HangRequest)
		var held []*lock.Lease
		for range 2 {
			e, err := l.AcquireAny(t.Context(), slots)
			require.NoError(t, err)
			_, protected := lock.FromContext(e.Context())
			require.False(t, protected)
			held = append(held, e)
		}
		_, err := l.AcquireAny(t.Context(), slots)
		require.ErrorIs(t, err, lock.ErrHeld)
		for _, e := range held {
			require.NoError(t, e.Release(t.Context()))
		}
		s.Every(nil)
	})
}

// The first of a line claims, and the store is silent. The callers behind it joined before the
// claim was sent, so its result is theirs, after one budget. No key has a holder, and none is
// said to.
func TestOutageOfALineTakesOneBudget(t *testing.T) {
	t.Parallel()
	for _, failOpen := range []bool{false, true} {
		bubbleCase(t, fmt.Sprint("fail open ", failOpen), func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			opts, slots := []lock.Option{lock.WithWait(4 * budget)}, lock.Slots("export", 10)
			if failOpen {
				opts = append(opts, lock.WithFailOpen())
			}
			l, began := open(opts...), time.Now()
			s.Every(fault.HangRequest, fault.Claim)
			var callers sync.WaitGroup
			for range len(slots) {
				callers.Go(func() {
					e, err := l.AcquireAny(t.Context(), slots)
					require.Equal(t, budget, time.Since(began))
					if !failOpen {
						require.ErrorIs(t, err, lock.ErrUnavailable)
						return
					}
					require.NoError(t, err)
					time.Sleep(time.Millisecond)
					require.NoError(t, e.Release(t.Context()))
				})
			}
			callers.Wait()
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
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithWait(budget/3), lock.WithObserver(seen.observe))
		s.Every(fault.HangRequest, fault.Claim)
		var first sync.WaitGroup
		first.Go(func() {
			_, err := l.AcquireAny(t.Context(), []string{"a"})
			require.ErrorIs(t, err, lock.ErrUnknown)
		})
		time.Sleep(time.Millisecond)
		_, err := l.AcquireAny(t.Context(), []string{"a"})
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, 1, seen.count(lock.EventUnavailable))
		require.Zero(t, seen.count(lock.EventRefused))
		first.Wait()
	})
}

// A distant store answers in time that each of 64 slots is held. Together, the answers take longer than
// a budget. They are no outage, so no work runs without a slot, and a wait goes on until one is free.
func TestAnyOverADistantStore(t *testing.T) {
	t.Parallel()
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

// As in Acquire, a poll that the store does not serve does not end the wait for a holder.
func TestSilentPollDoesNotEndTheWaitForAny(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(lock.WithWait(10*time.Second)), open()
		held := acquired(t, other, "a")
		time.AfterFunc(time.Second, func() { s.Every(fault.HangRequest, fault.Claim) })
		time.AfterFunc(3*time.Second, func() { s.Every(nil, fault.Claim); _ = held.Release(context.Background()) })
		var callers sync.WaitGroup
		for range 2 {
			callers.Go(func() {
				require.NoError(t, l.DoAny(t.Context(), []string{"a"}, func(context.Context, string) error { return nil }))
			})
		}
		callers.Wait()
	})
}

// Keys that cool down have no holder to wait for.
func TestAnyDoesNotWaitForACooldown(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithWait(time.Second))
		e, err := l.AcquireAny(t.Context(), []string{"a"})
		require.NoError(t, err)
		require.NoError(t, e.Settle(t.Context(), nil, time.Minute))
		began := time.Now()
		require.ErrorIs(t, l.DoAny(t.Context(), []string{"a"}, nil), lock.ErrSettled)
		require.Zero(t, time.Since(began))
	})
}

// A key with a NUL in it is one key, and no line of two.
func TestLineOfAKeyWithASeparator(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithWait(time.Second))
		for _, key := range []string{"a", "b"} {
			e := acquired(t, l, key)
			defer func() { require.NoError(t, e.Release(t.Context())) }()
		}
		var waiter sync.WaitGroup
		waiter.Go(func() {
			require.ErrorIs(t, l.DoAny(t.Context(), []string{"a", "b"}, nil), lock.ErrHeld)
		})
		time.Sleep(time.Millisecond)
		began := time.Now()
		require.NoError(t, l.DoAny(t.Context(), []string{"a\x00b"}, func(context.Context, string) error { return nil }))
		require.Zero(t, time.Since(began))
		waiter.Wait()
	})
}

// All keys are held in this process, so none is claimed. Still, a caller that has left, and a
// closed Locker, get their own errors and not a refusal.
func TestAnyOfHeldKeysAfterTheEnd(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
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
