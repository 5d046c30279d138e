package lock_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

// setKeys are keys of a set, in the order in which they are claimed.
var setKeys = []string{"item=1", "item=2", "item=3"}

// inOrder is a store that claims and releases no set at once.
func inOrder(s *fault.Store) lock.Store {
	return struct {
		lock.Store
		lock.Describer
	}{s, s}
}

// bubbleSets is bubble for sets that are claimed at once, and for sets that are claimed in order.
func bubbleSets(t *testing.T, run func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker)) {
	t.Helper()
	bubble(t, run)
	t.Run("in order", func(t *testing.T) { bubbleOver(t, inOrder, run) })
}

func acquiredAll(t *testing.T, l *lock.Locker) *lock.Set {
	t.Helper()
	set := must.Get(l.AcquireAll(t.Context(), setKeys))(t)
	return set
}

func requireFree(t *testing.T, s *fault.Store, keys ...string) {
	t.Helper()
	for _, key := range keys {
		require.Equal(t, lock.Free, s.State(t, key).State, key)
	}
}

// A refusal names its key, gives back the keys before it, and does not ask for the keys after it.
func TestRefusedSetHoldsNothing(t *testing.T) {
	for _, where := range []string{"another process", "this process", "a cool-down"} {
		t.Run(where, func(t *testing.T) {
			bubbleSets(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open()
				of, reason := open(), lock.ErrHeld
				if where == "this process" {
					of = l
				}
				other := acquired(t, of, setKeys[1])
				if where == "a cool-down" {
					require.NoError(t, other.Settle(t.Context(), nil, time.Second))
					reason = lock.ErrSettled
				}
				set, err := l.AcquireAll(t.Context(), setKeys)
				require.Nil(t, set)
				var refused *lock.RefusedError
				require.ErrorAs(t, err, &refused)
				require.ErrorIs(t, err, reason)
				require.Equal(t, setKeys[1], refused.Entry.Key)
				requireFree(t, s, setKeys[0], setKeys[2])

				require.NoError(t, other.Release(t.Context()))
				time.Sleep(time.Second)
				require.NoError(t, l.DoAll(t.Context(), setKeys, nothing))
				requireFree(t, s, setKeys...)
			})
		})
	}
}

// A claim of a set, or of a key in its middle, has no answer within the budget, and may be applied later. No
// key of the set keeps an owner, and the process itself can have the set at once.
func TestUnansweredClaimInASetLeavesNoOrphan(t *testing.T) {
	for name, f := range map[string]fault.Func{
		"applied, no answer": fault.HangReply, "never applied": fault.HangRequest, "applied late": fault.Late(2 * budget),
	} {
		for how, before := range map[string][]fault.Func{"at once": nil, "in order": {nil}} {
			as := direct
			if how == "in order" {
				as = inOrder
			}
			bubbleOverCase(t, name+", "+how, as, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l, began := open(), time.Now()
				s.Next(fault.Claim, append(before, f, f, f, f)...)
				require.ErrorIs(t, l.DoAll(t.Context(), setKeys, nil), lock.ErrUnknown)
				require.Equal(t, budget, time.Since(began))
				s.Skip(fault.Claim)
				for range 2 {
					require.NoError(t, l.DoAll(t.Context(), setKeys, nothing))
				}
				require.NoError(t, l.Do(t.Context(), setKeys[1], nothing))
				time.Sleep(lease + s.Lag)
				requireFree(t, s, setKeys...)
			})
		}
	}
}

// The loss of one key ends the work on all. The others stay taken until the work returns.
func TestLossOfOneKeyEndsTheSet(t *testing.T) {
	for _, lost := range setKeys {
		for ends, opts := range map[error][]lock.Option{context.Canceled: nil, lock.ErrLost: {lock.WithDetached()}} {
			t.Run(lost, func(t *testing.T) {
				bubbleSets(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
					caller, leave := context.WithCancel(t.Context())
					err := open(opts...).DoAll(caller, setKeys, func(ctx context.Context) error {
						leave()
						require.Equal(t, opts == nil, ctx.Err() != nil)
						s.Free(t, lost)
						time.Sleep(lease/3 + budget)
						set, ok := lock.SetFromContext(ctx)
						require.True(t, ok)
						require.Equal(t, setKeys, set.Keys())
						<-ctx.Done()
						require.ErrorIs(t, context.Cause(ctx), ends)
						require.ErrorIs(t, set.Extend(ctx), lock.ErrLost)
						for _, key := range setKeys {
							require.Equal(t, key != lost, s.State(t, key).State == lock.Held)
						}
						return nil
					})
					require.ErrorIs(t, err, lock.ErrLost)
					requireFree(t, s, setKeys...)
				})
			})
		}
	}
}

func TestUnansweredReleaseOfASetTakesOneBudget(t *testing.T) {
	bubbleSets(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		set := acquiredAll(t, l)
		s.Every(fault.HangRequest, fault.Release)
		began := time.Now()
		require.ErrorIs(t, set.Release(t.Context()), lock.ErrUnknown)
		require.Equal(t, budget, time.Since(began))
		s.Every(nil)
		require.NoError(t, l.DoAll(t.Context(), setKeys, nothing))
		requireFree(t, s, setKeys...)
	})
}

// Without the store, a set that fails open waits for one budget and not for one for each key.
func TestSetFailsOpenAsAWhole(t *testing.T) {
	bubbleSets(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, began := open(lock.WithFailOpen()), time.Now()
		s.Next(fault.Claim, nil).Every(fault.HangRequest)
		require.NoError(t, l.Do(t.Context(), "outer", func(outer context.Context) error {
			return l.DoAll(outer, setKeys, func(ctx context.Context) error {
				require.Equal(t, budget, time.Since(began))
				_, ok := lock.SetFromContext(ctx)
				require.False(t, ok, "a part of a set protects nothing")
				lease, ok := lock.FromContext(ctx)
				require.True(t, ok)
				require.Equal(t, "outer", lease.Key())
				for _, key := range setKeys {
					require.ErrorIs(t, l.Do(ctx, key, nil), lock.ErrHeld, "in this process the key is taken")
				}
				s.Every(nil)
				return nil
			})
		}))
		time.Sleep(lease + s.Lag)
		requireFree(t, s, setKeys...)
	})
}

// The store serves the first key and not the second: the set protects nothing, as a lease that fails open.
func TestPartOfASetThatFailsOpenLeavesNoReceipt(t *testing.T) {
	bubbleSets(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithFailOpen(), lock.WithFencing())
		s.Next(fault.Claim, append([]fault.Func{nil}, slices.Repeat([]fault.Func{fault.Refuse}, 8)...)...)
		set := acquiredAll(t, l)
		s.Skip(fault.Claim)
		require.Equal(t, lock.Held, s.State(t, setKeys[0]).State)
		_, protected := lock.FromContext(set.Context())
		require.False(t, protected)
		_, ok := set.Fence(setKeys[0])
		require.False(t, ok)
		require.ErrorIs(t, set.Settle(t.Context(), nil, time.Hour), lock.ErrUnavailable)
		require.NoError(t, set.Settle(t.Context(), nil, time.Hour), "the second call does nothing")
		requireFree(t, s, setKeys...)
	})
}

// WithWait counts for the whole set, however many of its keys have a holder.
func TestSetWaitsForAllItsKeysTogether(t *testing.T) {
	for _, where := range []string{"this process", "another process"} {
		t.Run(where, func(t *testing.T) {
			bubbleSets(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open(lock.WithWait(2 * time.Second))
				of := l
				if where == "another process" {
					of = open()
				}
				first := acquired(t, of, setKeys[0])
				second := acquired(t, of, setKeys[1])
				began := time.Now()
				time.AfterFunc(time.Second, func() { _ = first.Release(context.Background()) })
				_, err := l.AcquireAll(t.Context(), setKeys)
				var refused *lock.RefusedError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, setKeys[1], refused.Entry.Key)
				require.InDelta(t, 2*time.Second, time.Since(began), float64(10*time.Millisecond))
				requireFree(t, s, setKeys[0])

				time.AfterFunc(time.Second, func() { _ = second.Release(context.Background()) })
				require.NoError(t, l.DoAll(t.Context(), setKeys, nothing))
				requireFree(t, s, setKeys...)
			})
		})
	}
}

// A set loses its first key while it waits for the second: the wait ends, and the third is free for others.
func TestSetThatLosesAKeyWhileItWaits(t *testing.T) {
	for name, opts := range map[string][]lock.Option{"for its caller": nil, "detached": {lock.WithDetached()}} {
		for _, where := range []string{"this process", "another process"} {
			t.Run(name+", "+where, func(t *testing.T) {
				bubbleSets(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
					l := open(append(opts, lock.WithWait(time.Hour))...)
					of := l
					if where == "another process" {
						of = open()
					}
					held := acquired(t, of, setKeys[2])
					began := time.Now()
					time.AfterFunc(lease/10, func() { s.Free(t, setKeys[0]) })
					_, err := l.AcquireAll(t.Context(), setKeys)
					require.ErrorIs(t, err, lock.ErrUnavailable)
					require.NotErrorIs(t, err, lock.ErrLost, "no work has run")
					require.NotErrorIs(t, err, lock.ErrHeld)
					require.LessOrEqual(t, time.Since(began), lease/2, "the next renewal finds the loss")
					requireFree(t, s, setKeys[:2]...)
					require.NoError(t, held.Release(t.Context()))
					synctest.Wait() // the goroutine that has noticed the loss reports it meanwhile
					require.Zero(t, l.Stats().Active)
				})
			})
		}
	}
}

// A set loses its first key while the claim of its last is in flight: that is granted, and the set is not.
func TestSetThatLosesAKeyDuringItsLastClaim(t *testing.T) {
	t.Parallel()
	bubbleOver(t, inOrder, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithWait(time.Minute))
		held := acquired(t, l, setKeys[1])
		renewal := lease / 3
		time.AfterFunc(renewal/2, func() { s.Free(t, setKeys[0]) })
		time.AfterFunc(renewal-20*time.Millisecond, func() {
			s.Next(fault.Claim, nil, fault.Slow(50*time.Millisecond))
			_ = held.Release(context.Background())
		})
		began := time.Now()
		set, err := l.AcquireAll(t.Context(), setKeys)
		require.Nil(t, set)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.Equal(t, renewal+30*time.Millisecond, time.Since(began), "the last claim was answered")
		require.Equal(t, 1+3, s.Count(fault.Claim))
		requireFree(t, s, setKeys...)
	})
}

// Each resource has its own fence, so a set has one for each key.
func TestFencesOfASet(t *testing.T) {
	t.Parallel()
	l := fault.Locker(t, memstore.New(), lock.WithFencing())
	require.NoError(t, l.DoAll(t.Context(), setKeys, func(ctx context.Context) error {
		set, _ := lock.SetFromContext(ctx)
		last, _ := lock.FromContext(ctx)
		require.Equal(t, setKeys[2], last.Key())
		before := int64(0)
		for _, key := range setKeys {
			fence, ok := set.Fence(key)
			require.True(t, ok)
			require.Greater(t, fence, before)
			before = fence
		}
		_, ok := set.Fence("item=4")
		require.False(t, ok)
		return nil
	}))
}

func TestSettledSetIsACooldownOfEachKey(t *testing.T) {
	bubbleSets(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		set := acquiredAll(t, l)
		require.NoError(t, set.Settle(t.Context(), nil, time.Minute))
		require.NoError(t, set.Release(t.Context()), "after a settle it does nothing")
		for _, key := range setKeys {
			require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrSettled)
		}
		time.Sleep(time.Minute)
		require.NoError(t, l.DoAll(t.Context(), setKeys, nothing))
		require.Panics(t, func() { _ = set.Settle(t.Context(), nil, 0) })
		requireFree(t, s, setKeys...)
	})
}

func TestNilSet(t *testing.T) {
	t.Parallel()
	var set *lock.Set
	require.Empty(t, set.Keys())
	require.NoError(t, set.Context().Err())
	require.NoError(t, set.Release(t.Context()))
	require.ErrorIs(t, set.Extend(t.Context()), lock.ErrLost)
	require.ErrorIs(t, set.Settle(t.Context(), nil, time.Second), lock.ErrLost)
	_, ok := set.Fence("item=1")
	require.False(t, ok)
	require.Empty(t, (*lock.Lease)(nil).Key())
}

// The first lease of a set is over, and the work runs before its alarm. The last lease is valid for
// longer, since its claim was sent later. All workers and the alarm are due at the same moment.
func TestContextOfASetIsOverInTheInstantItsFirstValidityIs(t *testing.T) {
	t.Parallel()
	for range 20 {
		bubbleOver(t, inOrder, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l, began := open(), time.Now()
			s.Every(fault.HangRequest, fault.Renew)
			var set atomic.Pointer[lock.Set]
			var workers sync.WaitGroup
			for i := range 50 {
				workers.Go(func() {
					time.Sleep(validity - time.Since(began))
					ctx := set.Load().Context()
					if i%2 == 0 {
						require.ErrorIs(t, ctx.Err(), context.Canceled)
						return
					}
					require.True(t, over(ctx), "the context lives on")
				})
			}
			s.Next(fault.Claim, fault.Slow(50*time.Millisecond))
			acquired := must.Get(l.AcquireAll(t.Context(), setKeys[:2]))(t)
			set.Store(acquired)
			ctx := acquired.Context()
			require.NoError(t, ctx.Err())
			_ = ctx.Done() // from now on the context has its own end
			workers.Wait()
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			require.ErrorIs(t, acquired.Release(t.Context()), lock.ErrLost)
		})
	}
}
