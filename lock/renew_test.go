package lock_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/heap"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

// All leases of a Locker, and of the Lockers made from it, share the timers of their renewals. Each
// has to be renewed at its own time, for any lease before it.
func TestEachLeaseIsRenewedAtItsOwnTime(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		renewed := make(map[string]map[time.Duration]int)
		l := lock.New(memstore.New(), lock.WithObserver(func(_ context.Context, e lock.Event) {
			if e.Kind == lock.EventRenewed {
				mu.Lock()
				defer mu.Unlock()
				if renewed[e.Name] == nil {
					renewed[e.Name] = make(map[time.Duration]int)
				}
				renewed[e.Name][time.Since(began).Round(time.Millisecond)]++
			}
		}))
		long, short := l.With(lock.WithLease(90*time.Second)), l.With(lock.WithLease(9*time.Second))
		const each = 100 // more than there are shards
		var leases []*lock.Lease
		for i := range each {
			for name, of := range map[string]*lock.Locker{"long": long, "short": short, "middle": l} {
				leases = append(leases, acquired(t, of, lock.Key(name, strconv.Itoa(i))))
			}
		}
		for i := range each { // they take the timers first, and leave
			require.NoError(t, acquired(t, l.With(lock.WithLease(3*time.Second)), lock.Key("gone", strconv.Itoa(i))).Release(t.Context()))
		}

		time.Sleep(31 * time.Second)
		want := map[string]map[time.Duration]int{"long": {}, "short": {}, "middle": {}}
		for name, third := range map[string]time.Duration{"long": 30 * time.Second, "short": 3 * time.Second, "middle": 10 * time.Second} {
			for at := third; at <= 31*time.Second; at += third {
				want[name][at] = each
			}
		}
		for _, e := range leases {
			require.NoError(t, e.Release(t.Context()))
		}
		time.Sleep(time.Hour) // not renewed after its release
		require.NoError(t, l.Close(t.Context()))
		require.Equal(t, want, renewed)
	})
}

// A lease that is over is not kept until its renewal would have been due. Not
// parallel, because it measures the heap.
func TestLeasesThatAreOverAreForgotten(t *testing.T) {
	l := lock.New(memstore.New())
	cycle := func() {
		e, err := l.Acquire(t.Context(), key)
		if err != nil || e.Release(t.Context()) != nil {
			t.Fatal(err)
		}
	}
	cycle()
	before := heap.InUse()
	for range 50_000 {
		cycle()
	}
	require.Less(t, heap.InUse()-before, int64(1<<20))
	require.NoError(t, l.Close(t.Context()))
}

func TestLongWorkIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l, other := open(lock.WithObserver(seen.observe)), open()
		require.NoError(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			for range 30 {
				time.Sleep(lease / 10)
				require.ErrorIs(t, other.Do(ctx, key, nil), lock.ErrHeld)
				require.NoError(t, ctx.Err())
			}
			return nil
		}))
		require.GreaterOrEqual(t, seen.count(lock.EventRenewed), 8)
	})
}

func TestRenewalGoesOnWhenTheClientHasGone(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, l.Do(ctx, key, func(ctx context.Context) error {
			cancel()
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			time.Sleep(3 * lease) // work that does not look at its context
			require.Equal(t, lock.Held, s.State(t, key).State)
			return nil
		}))
		require.Equal(t, lock.Free, s.State(t, key).State, "released although the context had ended")
	})
}

// A lease ends with the maximum hold. One that is as long as that cannot be prolonged, so it is not renewed.
func TestMaxHoldEndsTheLease(t *testing.T) {
	for most, renewed := range map[time.Duration]bool{10 * time.Second: true, lease: false} {
		bubbleCase(t, most.String(), func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			began := time.Now()
			err := open(lock.WithMaxHold(most)).Do(t.Context(), key, func(ctx context.Context) error {
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
				require.ErrorContains(t, context.Cause(ctx), fmt.Sprint("maximum of ", most))
				held := time.Since(began)
				require.LessOrEqual(t, held, most)
				require.Greater(t, held, most-200*time.Millisecond)
				time.Sleep(200 * time.Millisecond)
				requireFree(t, s, key) // not held past its maximum in the store either
				return nil
			})
			require.ErrorIs(t, err, lock.ErrLost)
			require.Equal(t, renewed, s.Count(fault.Renew) > 0)
		})
	}
}

// A renewal that blocks, even beyond its context, must not extend the validity.
func TestNotifiedNoLaterThanTheEndOfValidity(t *testing.T) {
	for name, f := range map[string]fault.Func{"hangs": fault.HangRequest, "stuck": fault.Stuck(time.Minute), "refused": fault.Refuse, "lost": fault.LoseRequest} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open()
			s.Every(f, fault.Renew)
			began := time.Now()
			err := l.Do(t.Context(), key, func(ctx context.Context) error {
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
				require.Less(t, time.Since(began), lease)
				require.Greater(t, time.Since(began), lease*9/10)
				return nil
			})
			require.ErrorIs(t, err, lock.ErrLost)
			time.Sleep(2 * time.Minute)
		})
	}
}

func TestRemovedKeyIsNeverCreatedAgain(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		err := l.Do(t.Context(), key, func(ctx context.Context) error {
			s.Free(t, key)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			require.Equal(t, lock.Free, s.State(t, key).State)
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, lock.ErrLost)
	})
}

func TestExtend(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		e := acquired(t, l, key)
		time.Sleep(lease / 4)
		require.NoError(t, e.Extend(t.Context()))
		require.Equal(t, lease, s.State(t, key).Left)
		s.Every(fault.Refuse, fault.Renew)
		require.ErrorIs(t, e.Extend(t.Context()), lock.ErrUnavailable)
		require.NoError(t, e.Context().Err())
		s.Every(nil, fault.Renew)
		s.Free(t, key)
		require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
		require.ErrorIs(t, context.Cause(e.Context()), lock.ErrLost)
		require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrLost)
		require.NoError(t, e.Release(t.Context()), "the second call")

		requireGrant(t, l)
		require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
	})
}

// If the key of a hung handler is freed by an operator, or lost, this process
// is locked out only until it is notified of the loss.
func TestHungHandler(t *testing.T) {
	for name, lost := range map[string]func(t *testing.T, s *fault.Store){
		"freed by an operator": func(t *testing.T, s *fault.Store) { s.Free(t, key) },
		"store gone":           func(_ *testing.T, s *fault.Store) { s.Every(fault.HangRequest, fault.Renew) },
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var seen events
			l, other := open(lock.WithObserver(seen.observe)), open()
			hung := acquired(t, l, key)
			began := time.Now()
			lost(t, s)
			if s.State(t, key).State == lock.Free {
				e := acquired(t, other, key)
				require.NoError(t, e.Release(t.Context()))
			}
			<-hung.Context().Done()
			require.ErrorIs(t, context.Cause(hung.Context()), lock.ErrLost)
			require.LessOrEqual(t, time.Since(began), lease)
			s.Every(nil, fault.Renew)
			synctest.Wait()
			e := acquired(t, l, key)
			require.NoError(t, e.Context().Err())
			require.ErrorIs(t, hung.Release(t.Context()), lock.ErrLost)
			require.Equal(t, lock.Held, s.State(t, key).State, "the successor's entry is not the old holder's to release")
			require.NoError(t, e.Release(t.Context()))
			require.Equal(t, 1, seen.count(lock.EventLost))
		})
	}
}

// A process that was paused runs its work before any timer. Here both are due
// at the same moment, and the work often comes first.
func TestContextIsOverInTheInstantItsValidityIs(t *testing.T) {
	for i := range 600 {
		solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
			s.Every(fault.HangRequest, fault.Renew)
			began := time.Now()
			e := acquired(t, l, key)
			ctx := e.Context()
			time.Sleep(validity - time.Since(began))
			if i%2 == 0 {
				require.ErrorIs(t, ctx.Err(), context.Canceled)
			} else {
				require.True(t, over(ctx), "the context lives on")
			}
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			require.ErrorIs(t, e.Release(t.Context()), lock.ErrLost)
		})
	}
}

// At this moment, Extend also does not extend a lease that is over, whether by its validity or by
// the maximum hold.
func TestExtendInTheInstantTheValidityIsOver(t *testing.T) {
	for range 20 {
		for name, hold := range map[string]time.Duration{"hold": 2 * lease, "validity": time.Minute} {
			bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				l := open(lock.WithMaxHold(hold))
				end := hold
				if name == "validity" {
					s.Every(fault.HangRequest, fault.Renew)
					end = validity
				}
				began := time.Now()
				e := acquired(t, l, key)
				time.Sleep(end - time.Since(began))
				s.Every(nil, fault.Renew)
				require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
				require.ErrorIs(t, e.Release(t.Context()), lock.ErrLost)
			})
		}
	}
}

// notified, events: a renewal that meets the lease's own receipt is not a loss.
func TestRenewalMeetsOwnReceipt(t *testing.T) {
	for name, f := range map[string]fault.Func{"reply lost": fault.HangReply, "reply slow": fault.Slow(budget - 50*time.Millisecond)} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var seen events
			l := open(lock.WithKeep(keep), lock.WithObserver(seen.observe))
			s.Every(f, fault.Settle)
			must.Run(t)(l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
				time.Sleep(lease/3 - 100*time.Millisecond)
				return []byte("answer"), nil
			}))
			time.Sleep(lease)
			s.Every(nil, fault.Settle)
			time.Sleep(10 * time.Second)
			require.Equal(t, 1, seen.count(lock.EventSettled))
			require.Zero(t, seen.count(lock.EventLost), "it was settled, by us")
		})
	}
}

// A renewal timer that fires at the moment of the release goes on renewing the
// lease that is being released.
func TestRenewalOfAReleasedLease(t *testing.T) {
	for range 300 {
		solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
			s.Every(fault.HangRequest, fault.Release)
			e := acquired(t, l, key)
			time.Sleep(lease / 3)
			_ = e.Release(t.Context())
			sent := s.Count(fault.Renew)
			time.Sleep(2 * lease)
			require.LessOrEqual(t, s.Count(fault.Renew), sent, "renewed after the release")
		})
	}
}

// events: an Extend that is overtaken by the Release of the same lease is no loss.
func TestExtendOvertakenByRelease(t *testing.T) {
	observed(t, func(t *testing.T, s *fault.Store, l *lock.Locker, seen *events) {
		e := acquired(t, l, key)
		s.Next(fault.Renew, func(_ context.Context, apply func() error) error { time.Sleep(50 * time.Millisecond); return apply() })
		s.Next(fault.Release, fault.Slow(80*time.Millisecond))
		extended := make(chan error, 1)
		go func() { extended <- e.Extend(context.Background()) }()
		synctest.Wait()
		require.NoError(t, e.Release(t.Context()))
		<-extended
		require.Equal(t, 1, seen.count(lock.EventReleased))
		require.Zero(t, seen.count(lock.EventLost))
	})
}
