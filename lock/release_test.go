package lock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// no-self-conflict: the run failed, so the key is free for any request as soon
// as its release is answered. A waiting request triggers another send of it.
func TestAnotherRequestBehindAnUnansweredRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep))
		s.Every(fault.HangRequest, fault.Release)
		_, _, err := l.Once(t.Context(), key, print1, f.fail(errors.New("mine")))
		require.ErrorContains(t, err, "mine")
		time.Sleep(20 * time.Second)
		s.Every(nil, fault.Release)
		_, _, err = l.Once(t.Context(), key, print2, f.run("ok"))
		require.NotErrorIs(t, err, lock.ErrMismatch)
		require.NoError(t, err)
	})
}

// three outcomes: all sends of the release were refused, and none was unanswered. So a later
// "no" of the store is not the effect of an earlier send.
func TestRefusedSendsAreNotUnanswered(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		e := acquired(t, l, key)
		s.Every(fault.Refuse, fault.Release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		assert.Zero(t, seen.count(lock.EventUnknown), "nothing was unknown")
		s.Free(t, key)
		s.Every(nil, fault.Release)
		time.Sleep(time.Second)
		require.Zero(t, seen.count(lock.EventReleased))
		require.Zero(t, l.Stats().Backlog)
	})
}

// no-self-conflict: while the release of this process has no answer, even a caller for which the
// queue has no room is not refused as held.
func TestFullQueueBehindAnUnansweredRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		e := acquired(t, l, key)
		s.Every(fault.HangRequest, fault.Release)
		require.Error(t, e.Release(t.Context()))
		var wg sync.WaitGroup
		for range 70 {
			wg.Go(func() {
				if _, err := l.Acquire(context.Background(), key); errors.Is(err, lock.ErrHeld) {
					t.Error("refused by its own unanswered release")
				}
			})
		}
		wg.Wait()
	})
}

// A release without an answer keeps this process from the key no longer than the lease was valid,
// whether it was applied or not. Then other processes get the key, too.
func TestUnansweredReleaseEndsWithTheValidity(t *testing.T) {
	bubbleCase(t, "lock", func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(30 * time.Second))
		s.Every(fault.HangRequest, fault.Release)
		e := acquired(t, l, key)
		require.Error(t, e.Release(t.Context()))
		time.Sleep(30 * time.Second)
		require.Equal(t, lock.Free, s.State(t, key).State)
		began := time.Now()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err, "a free key")
		assert.Zero(t, time.Since(began))
		s.Every(nil, fault.Release)
		require.NoError(t, e.Release(t.Context()))
	})
	bubbleCase(t, "failed run", func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l, other := open(lock.WithKeep(keep)), open(lock.WithKeep(keep))
		s.Every(fault.Refuse, fault.Release)
		_, _, err := l.Once(t.Context(), key, print1, f.fail(errors.New("mine")))
		require.ErrorContains(t, err, "mine")
		time.Sleep(10 * lease)
		_, _, err = other.Once(t.Context(), key, print1, f.run("again"))
		require.ErrorIs(t, err, lock.ErrAbandoned)
		_, _, err = l.Once(t.Context(), key, print1, f.run("again"))
		require.ErrorIs(t, err, lock.ErrUnavailable, "its own release is what is missing")
		s.Every(nil, fault.Release)
		_, _, err = l.Once(t.Context(), key, print1, f.run("again"))
		require.NoError(t, err)
	})
}

// no-self-conflict: a caller that waits for the unanswered release of its own process
// was refused, as if another caller held the key, if the wait ended at the moment at which the key
// became free.
func TestFreedInTheInstantTheWaitEnds(t *testing.T) {
	for range 50 {
		bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open()
			began := time.Now()
			e := acquired(t, l, key)
			s.Every(fault.HangRequest, fault.Release)
			require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
			time.Sleep(validity - budget - time.Since(began))
			_, err := l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrUnavailable, "no caller holds it")
		})
	}
}

// "no" after an unanswered send of the same release means done.
func TestLostReplyOfReleaseIsNotALoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		e := acquired(t, l, key)
		s.Next(fault.Release, fault.LoseReply)
		require.NoError(t, e.Release(t.Context()))
		require.Equal(t, 1, seen.count(lock.EventReleased))
		require.Zero(t, seen.count(lock.EventLost))
	})
}

// The answer to the first call of a release is "no": then it is a loss.
func TestFirstNoOfReleaseIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		err := l.Do(t.Context(), key, func(context.Context) error {
			s.Free(t, key)
			return errors.New("mine")
		})
		require.ErrorIs(t, err, lock.ErrLost)
		require.ErrorContains(t, err, "mine")
	})
}

// A release that is never answered keeps no caller out: not this process once the
// store is back, and not for longer than the lease.
func TestIncidentReleaseNeverAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Every(fault.HangRequest, fault.Release)
		began := time.Now()
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		require.Equal(t, budget, time.Since(began), "the caller waits for its budget, no longer")

		time.Sleep(lease / 3)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrHeld)

		s.Every(nil, fault.Release)
		began = time.Now()
		e := acquired(t, l, key)
		require.LessOrEqual(t, time.Since(began), budget)
		require.NoError(t, e.Release(t.Context()))
	})
}

func TestReleaseIsNotAskedForEver(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Every(fault.HangRequest, fault.Release)
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		time.Sleep(2 * lease)
		s.Every(nil, fault.Release)
		time.Sleep(s.Lag + 10*time.Second) // the last clean-up
		sent := s.Count(fault.Release)
		time.Sleep(time.Hour)
		require.Equal(t, sent, s.Count(fault.Release))
	})
}

// A caller needs a key whose release is being repeated without an answer. The release is then
// repeated once more, without the pause of a long outage.
func TestAReleaseThatIsAskedForIsRepeatedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(time.Minute))
		e := acquired(t, l, key)
		var came time.Time
		var mu sync.Mutex
		asked, began := make(chan struct{}), time.Now()
		s.Every(func(_ context.Context, apply func() error) error {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case time.Since(began) < 20*time.Second: // until the pause is five
				return io.EOF
			case came.IsZero():
				came = time.Now()
				close(asked)
				return io.EOF
			case time.Since(came) < budget:
				return io.EOF
			}
			return apply()
		}, fault.Release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		<-asked
		time.Sleep(budget / 2)
		granted(t, l.With(lock.WithBudget(2*budget)))
	})
}

// A release that follows a settle of unknown outcome would free the settled
// key.
func TestReleaseAfterSettleIsNoOp(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		e := acquired(t, l, key)
		s.Next(fault.Settle, fault.LoseRequest, fault.HangRequest, fault.HangRequest, fault.HangRequest)
		require.ErrorIs(t, e.Settle(t.Context(), nil, time.Hour), lock.ErrUnknown)
		require.NoError(t, e.Release(t.Context()))
		require.Zero(t, s.Count(fault.Release))
		time.Sleep(time.Second)
		require.Equal(t, lock.Settled, s.State(t, key).State)
		s.Free(t, key)
	})
}

func TestDoReleasesWhateverHappens(t *testing.T) {
	type sentinel struct{ int }
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		require.PanicsWithValue(t, sentinel{1}, func() {
			_ = l.Do(context.Background(), key, func(context.Context) error { panic(sentinel{1}) })
		})
		require.Equal(t, lock.Free, s.State(t, key).State)

		var wg sync.WaitGroup
		wg.Go(func() {
			_ = l.Do(context.Background(), key, func(context.Context) error { runtime.Goexit(); return nil })
		})
		wg.Wait()
		require.Equal(t, lock.Free, s.State(t, key).State)

		ctx, cancel := context.WithCancel(t.Context())
		err := l.Do(ctx, key, func(ctx context.Context) error { cancel(); return ctx.Err() })
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, lock.Free, s.State(t, key).State)
	})
}

// A lease whose release has no answer is not reported as lost at the end of its validity.
func TestAReleasedLeaseIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		e := acquired(t, l, key)
		ctx, began := e.Context(), time.Now()
		s.Every(fault.HangRequest, fault.Release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		for time.Since(began) < 2*lease {
			_ = ctx.Err()
			require.NotErrorIs(t, context.Cause(ctx), lock.ErrLost)
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		require.Zero(t, seen.count(lock.EventLost))
	})
}

// A caller that waits for the confirmation of a release does not wait for all that is due
// before it.
func TestAwaitedEndGoesBeforeDueTasks(t *testing.T) {
	const n = 2000
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(time.Minute))
		var all sync.WaitGroup
		leases := make([]*lock.Lease, n)
		for i := range leases {
			e := acquired(t, l, fmt.Sprint(i))
			leases[i] = e
		}
		s.Every(fault.HangRequest, fault.Release)
		for _, e := range leases {
			all.Go(func() { _ = e.Release(t.Context()) })
		}
		all.Wait()
		time.Sleep(10 * time.Second)
		s.Every(fault.Slow(20*time.Millisecond), fault.Release)
		for i := range 20 {
			e := acquired(t, l, fmt.Sprint(n-1-50*i))
			require.NoError(t, e.Release(t.Context()))
		}
		s.Every(nil)
	})
}

// A release that the clean-up completes is an event of the lease: it took from the grant on.
func TestEventOfALateRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		e := acquired(t, l, key)
		time.Sleep(lease / 2)
		s.Every(fault.HangRequest, fault.Release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		s.Every(nil)
		time.Sleep(lease)
		synctest.Wait()
		require.GreaterOrEqual(t, seen.only(t, lock.EventReleased).Took, lease/2)
	})
}

// no-lockout: the claim was granted by its second send, and the first is still under way when the release gets
// no answer. The entry is there, so its removal waits for no send, and goes on when the server refuses this one.
func TestUnansweredReleaseBesideASendOfItsClaim(t *testing.T) {
	bubbleOver(t, apart, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		letGo := make(chan struct{})
		s.Next(fault.Claim, func(ctx context.Context, apply func() error) error {
			<-letGo
			return fault.Refuse(ctx, apply)
		})
		e := acquired(t, l, key)
		s.Every(fault.HangRequest, fault.Release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		s.Every(nil)
		time.Sleep(2 * budget)
		require.Equal(t, lock.Free, s.State(t, key).State)
		close(letGo)
		synctest.Wait()
	})
}
