package lock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/failopen"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/event"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

func TestFailOpenKeepsTheKeyShutInThisProcess(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		s.Every(fault.HangReply, fault.Claim)
		hold := new(failopen.Hold)
		_, err := l.Acquire(failopen.With(t.Context(), hold), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		require.NotNil(t, hold.End)
		require.Equal(t, 1, seen.count(event.Bypassed))

		// attack A1 e: the token counts as granted while the work runs.
		time.Sleep(lease / 2)
		s.Every(nil, fault.Claim)
		require.Equal(t, lock.Held, s.State(t, key).State, "not swept under the work")
		_, err = l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		hold.End()
		hold.End()
		synctest.Wait()
		require.Equal(t, lock.Free, s.State(t, key).State)
	})
}

// Work without the store takes the key, in this process, from a lease whose settle
// has no answer yet. That is renewed until it has, even if its first renewal was
// not due before.
func TestASettleIsRenewedAfterFailOpenTookItsKey(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.Every(fault.HangRequest, fault.Settle)
		require.ErrorIs(t, e.Settle(t.Context(), nil, time.Hour), lock.ErrUnavailable)
		hold := new(failopen.Hold)
		_, err = l.Acquire(failopen.With(t.Context(), hold), key)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotNil(t, hold.End)
		require.Zero(t, s.Count(fault.Renew))
		time.Sleep(3 * lease)
		require.Equal(t, lock.Held, s.State(t, key).State)
		hold.End()
		s.Every(nil, fault.Settle)
		time.Sleep(10 * time.Second)
		require.Equal(t, lock.Settled, s.State(t, key).State)
	})
}

func TestFailOpenOfHungWorkEndsWithTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Every(fault.Refuse, fault.Claim)
		hold := new(failopen.Hold)
		_, err := l.Acquire(failopen.With(t.Context(), hold), key)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		s.Every(nil, fault.Claim)
		time.Sleep(lease)
		synctest.Wait()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		hold.End()
		_, err = l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld, "the end of the old work does not open the gate of the new one")
		require.NoError(t, e.Release(t.Context()))
	})
}

func TestFailOpenIsNotForRefusals(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		e, err := other.Acquire(t.Context(), key)
		require.NoError(t, err)
		hold := new(failopen.Hold)
		_, err = l.Acquire(failopen.With(t.Context(), hold), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.Nil(t, hold.End)
		require.NoError(t, e.Release(t.Context()))
	})
}

// fail-open: two duplicates of one process run beside each other if they met
// behind an end that is unanswered.
func TestFailOpenBehindAnUnansweredRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(30 * time.Second))
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.Every(fault.HangRequest, fault.Claim, fault.Renew, fault.Release)
		require.Error(t, e.Release(t.Context()))
		var mu sync.Mutex
		running, most := 0, 0
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { // what middleware.Lock does with WithFailOpen
				var hold failopen.Hold
				e, err := l.Acquire(failopen.With(context.Background(), &hold), key)
				if hold.End != nil {
					defer hold.End()
				}
				if err == nil {
					_ = e.Release(context.Background())
					return
				}
				if !errors.Is(err, lock.ErrUnavailable) {
					return
				}
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
			})
		}
		wg.Wait()
		require.LessOrEqual(t, most, 1, "duplicates of one process ran beside each other")
		s.Every(nil, fault.Claim, fault.Renew, fault.Release)
	})
}

// fail-open: a caller that left is no outage.
func TestFailOpenForACallerThatLeft(t *testing.T) {
	bubbleOver(t, apart, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		s.Every(fault.Slow(100*time.Millisecond), fault.Claim)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var hold failopen.Hold
		_, err := l.Acquire(failopen.With(ctx, &hold), key)
		require.Error(t, err)
		if hold.End != nil {
			defer hold.End()
		}
		require.Zero(t, seen.count(event.Bypassed))
	})
}

// Work that would run unprotected is refused while other such work runs, and is
// not kept from running by a claim that failed and is not to run.
func TestCallersThatMeetAndFailOpen(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Every(fault.HangRequest, fault.Claim)
		strict := make(chan error, 1)
		go func() { _, err := l.Acquire(context.Background(), key); strict <- err }()
		time.Sleep(budget / 2)
		unprotected := 0
		var mu sync.Mutex
		errs := meet(10, func(int) error {
			var hold failopen.Hold
			_, err := l.Acquire(failopen.With(context.Background(), &hold), key)
			if hold.End != nil {
				mu.Lock()
				unprotected++
				mu.Unlock()
				time.Sleep(time.Second)
				hold.End()
			}
			return err
		})
		require.ErrorIs(t, <-strict, lock.ErrUnavailable)
		require.Equal(t, 1, unprotected)
		held := 0
		for _, err := range errs {
			if errors.Is(err, lock.ErrHeld) {
				held++
			}
		}
		require.Equal(t, 9, held)
	})
}

// An observer that ended the goroutine when it was notified that work is to run without the
// store had the acquire counted as ended twice: Close never found all leases ended.
func TestObserverEndsABypass(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithObserver(func(_ context.Context, e lock.Event) {
			if e.Kind == event.Bypassed {
				runtime.Goexit()
			}
		}))
		s.Every(fault.Refuse, fault.Claim)
		done := make(chan struct{})
		go func() {
			defer close(done)
			var hold failopen.Hold
			defer func() {
				if hold.End != nil {
					hold.End()
				}
			}()
			_, _ = l.Acquire(failopen.With(context.Background(), &hold), key)
		}()
		<-done
		require.Zero(t, l.Stats().Active)
	})
}
