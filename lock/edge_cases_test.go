package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// A lease whose release has no answer is not reported as lost at the end of its validity.
func TestAReleasedLeaseIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
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

// The settle of a cool-down has no answer, and a renewal does not find the entry. The settle is
// given up, because there is no entry to settle.
func TestASettleOfAnEntryThatIsGoneIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.Every(fault.HangRequest, fault.Settle)
		require.ErrorIs(t, e.Settle(t.Context(), nil, time.Hour), lock.ErrUnavailable)
		require.Equal(t, 1, l.Stats().Backlog)
		s.Free(t, key)
		time.Sleep(3 * lease)
		require.Zero(t, l.Stats().Backlog)
	})
}

// A claim that is answered as its lease is over is no grant: this process was paused.
func TestAnAnswerAfterTheLeaseIsNoGrant(t *testing.T) {
	for name, tt := range map[string]struct {
		pause   time.Duration
		granted bool
	}{
		"a moment before": {validity - time.Millisecond, true},
		"at its end":      {validity, false},
		"later":           {lease + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
				var seen events
				l := open(lock.WithObserver(seen.observe))
				s.Next(fault.Claim, func(_ context.Context, apply func() error) error {
					err := apply()
					time.Sleep(tt.pause)
					return err
				})
				e, err := l.Acquire(t.Context(), key)
				if tt.granted {
					require.NoError(t, err)
					require.NoError(t, e.Release(t.Context()))
					return
				}
				require.ErrorIs(t, err, lock.ErrUnavailable)
				require.Zero(t, seen.count(lock.EventClaimed)+seen.count(lock.EventLost))
				synctest.Wait()
				require.Equal(t, lock.Free, s.State(t, key).State, "an orphan, which is removed")
			})
		})
	}
}

// What may land as long as it is in flight is removed once before it has, and again when
// it has: nothing is gained by asking in between.
func TestOneRemovalWhileInFlight(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var left leftClaim
		l := open()
		s.Next(fault.Claim, left.leave, full)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		time.Sleep(time.Minute)
		require.Equal(t, 1, s.Count(fault.Release))
		require.NoError(t, left.apply())
		left.flight.Arrive(send.Lost)
		synctest.Wait()
		require.Equal(t, 2, s.Count(fault.Release))
		require.Equal(t, lock.Free, s.State(t, key).State)
	})
}

// Clean-up that finds nothing to send costs no token, also while callers talk to the store.
func TestCleanUpThatSendsNothingCostsNoToken(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		var left leftClaim
		s.Next(fault.Claim, left.leave)
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, e.Release(t.Context()))

		hung := make(chan struct{})
		s.Next(fault.Claim, func(_ context.Context, apply func() error) error { <-hung; return apply() })
		var all sync.WaitGroup
		all.Go(func() { _ = l.Do(t.Context(), "other", nothing) }) // the caller that talks
		synctest.Wait()
		tokens := l.Stats().Retries
		left.flight.Arrive(send.Nothing)
		synctest.Wait()
		require.Equal(t, 1, s.Count(fault.Release))
		require.Equal(t, tokens, l.Stats().Retries)
		close(hung)
		all.Wait()
	})
}

// A caller that waits for the confirmation of a release does not wait for all that is due
// before it.
func TestAskingForAnEndComesBeforeWhatIsDue(t *testing.T) {
	const n = 2000
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(time.Minute))
		var all sync.WaitGroup
		leases := make([]*lock.Lease, n)
		for i := range leases {
			e, err := l.Acquire(t.Context(), fmt.Sprint(i))
			require.NoError(t, err)
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
			e, err := l.Acquire(t.Context(), fmt.Sprint(n-1-50*i))
			require.NoError(t, err)
			require.NoError(t, e.Release(t.Context()))
		}
		s.Every(nil)
	})
}
