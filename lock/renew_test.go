package lock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

// All leases of a Locker, and of the Lockers made from it, share the timers of their renewals. Each
// has to be renewed at its own time, for any lease before it.
func TestEachLeaseIsRenewedAtItsOwnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		renewed := make(map[string][]time.Duration)
		l := lock.New(memstore.New(), lock.WithObserver(func(_ context.Context, e lock.Event) {
			if e.Kind == lock.EventRenewed {
				mu.Lock()
				defer mu.Unlock()
				renewed[e.Name] = append(renewed[e.Name], time.Since(began).Round(time.Millisecond))
			}
		}))
		kinds := []struct {
			name  string
			of    *lock.Locker
			third time.Duration
		}{
			{"long", l.With(lock.WithLease(90 * time.Second)), 30 * time.Second},
			{"short", l.With(lock.WithLease(9 * time.Second)), 3 * time.Second},
			{"middle", l, 10 * time.Second},
		}
		const each = 100 // more than there are shards
		var leases []*lock.Lease
		acquire := func(name string, of *lock.Locker, i int) *lock.Lease {
			e := acquired(t, of, lock.Key(name, string(rune('A'+i))))
			return e
		}
		for i := range each {
			for _, k := range kinds {
				leases = append(leases, acquire(k.name, k.of, i))
			}
		}
		for i := range each { // they take the timers first, and leave
			require.NoError(t, acquire("gone", l.With(lock.WithLease(3*time.Second)), i).Release(t.Context()))
		}

		time.Sleep(31 * time.Second)
		mu.Lock()
		for _, k := range kinds {
			times := make(map[time.Duration]int)
			for _, at := range renewed[k.name] {
				times[at]++
			}
			want := make(map[time.Duration]int)
			for at := k.third; at <= 31*time.Second; at += k.third {
				want[at] = each
			}
			require.Equal(t, want, times, k.name)
		}
		require.Empty(t, renewed["gone"])
		mu.Unlock()

		for _, e := range leases {
			require.NoError(t, e.Release(t.Context()))
		}
		total := func() (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, times := range renewed {
				n += len(times)
			}
			return n
		}
		before := total()
		time.Sleep(time.Hour)
		require.Equal(t, before, total(), "renewed after its release")
		require.NoError(t, l.Close(t.Context()))
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
	before := heap()
	for range 50_000 {
		cycle()
	}
	require.Less(t, heap()-before, int64(1<<20))
	require.NoError(t, l.Close(t.Context()))
}

func TestShortWorkIsNeverRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error {
			time.Sleep(lease/3 - time.Millisecond)
			return nil
		}))
		time.Sleep(time.Minute)
		require.Zero(t, s.Count(fault.Renew))
		require.Equal(t, 1, s.Count(fault.Claim))
		require.Equal(t, 1, s.Count(fault.Release))
	})
}

func TestLongWorkIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l, other := open(lock.WithObserver(seen.observe)), open()
		require.NoError(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			for range 30 {
				time.Sleep(lease / 10)
				_, err := other.Acquire(ctx, key)
				require.ErrorIs(t, err, lock.ErrHeld)
				require.NoError(t, ctx.Err())
			}
			return nil
		}))
		require.GreaterOrEqual(t, seen.count(lock.EventRenewed), 8)
	})
}

func TestRenewalGoesOnWhenTheClientHasGone(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
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

func TestMaxHoldEndsTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithMaxHold(10 * time.Second))
		began := time.Now()
		err := l.Do(t.Context(), key, func(ctx context.Context) error {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			require.ErrorContains(t, context.Cause(ctx), "maximum of 10s")
			held := time.Since(began)
			require.LessOrEqual(t, held, 10*time.Second)
			require.Greater(t, held, 10*time.Second-200*time.Millisecond)
			time.Sleep(200 * time.Millisecond)
			require.Equal(t, lock.Free, s.State(t, key).State, "not held past its maximum in the store either")
			return nil
		})
		require.ErrorIs(t, err, lock.ErrLost)
	})
}

func TestTransientRenewalFailureIsSurvived(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Next(fault.Renew, fault.HangReply, fault.LoseRequest, fault.HangRequest, fault.Refuse)
		require.NoError(t, l.Do(t.Context(), key, func(ctx context.Context) error {
			time.Sleep(2 * lease)
			return ctx.Err()
		}))
	})
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
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
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
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
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

		granted(t, l)
		require.ErrorIs(t, e.Extend(t.Context()), lock.ErrLost)
	})
}

// If the key of a hung handler is freed by an operator, or lost, this process
// is locked out only until it is notified of the loss.
func TestHungHandler(t *testing.T) {
	for name, lost := range map[string]func(t *testing.T, s *fault.Store){
		"freed by an operator": func(t *testing.T, s *fault.Store) { t.Helper(); s.Free(t, key) },
		"store gone":           func(t *testing.T, s *fault.Store) { t.Helper(); s.Every(fault.HangRequest, fault.Renew) },
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var seen events
			l, other := open(lock.WithObserver(seen.observe)), open()
			hung := acquired(t, l, key)
			began := time.Now()
			lost(t, s)
			if s.State(t, key).State == lock.Free {
				e, err := other.Acquire(t.Context(), key)
				require.NoError(t, err, "other processes go on at once")
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
		bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open()
			s.Every(fault.HangRequest, fault.Renew)
			began := time.Now()
			e := acquired(t, l, key)
			ctx := e.Context()
			time.Sleep(validity - time.Since(began))
			if i%2 == 0 {
				require.ErrorIs(t, ctx.Err(), context.Canceled)
			} else {
				select {
				case <-ctx.Done():
				default:
					t.Error("the context lives on")
				}
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
			_, _, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
				time.Sleep(lease/3 - 100*time.Millisecond)
				return []byte("answer"), nil
			})
			require.NoError(t, err)
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
		bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open()
			s.Every(fault.HangRequest, fault.Release)
			e := acquired(t, l, key)
			time.Sleep(lease / 3)
			_ = e.Release(t.Context())
			sent := s.Count(fault.Renew)
			time.Sleep(2 * lease)
			require.LessOrEqual(t, s.Count(fault.Renew), sent, "renewed after the release")
		})
		if t.Failed() {
			return
		}
	}
}

// A lease as long as the maximum hold cannot be prolonged, so it is not renewed.
func TestLeaseOfMaxHoldIsNotRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithMaxHold(lease), lock.WithObserver(seen.observe))
		_, _, err := l.Once(t.Context(), key, nil, func(ctx context.Context) ([]byte, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		require.ErrorIs(t, err, lock.ErrLost)
		require.Zero(t, seen.count(lock.EventRenewed))
	})
}

// events: an Extend that is overtaken by the Release of the same lease is no loss.
func TestExtendOvertakenByRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
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
