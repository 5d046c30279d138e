package lock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/failopen"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

func TestCloseWaitsForHolders(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		time.AfterFunc(2*time.Second, func() { _ = e.Release(context.Background()) })
		began := time.Now()
		require.NoError(t, l.Close(t.Context()))
		require.Equal(t, 2*time.Second, time.Since(began))
		require.Equal(t, lock.Free, s.State(t, key).State)
		require.NoError(t, l.Close(t.Context()))
		_, err = l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrClosed)
	})
}

func TestCloseCancelsHoldersAndGivesThemABudget(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		done := make(chan error, 1)
		go func() {
			done <- l.Do(context.Background(), key, func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, func() error { _ = l.Close(ctx); return <-done }(), lock.ErrClosed)
		require.Equal(t, lock.Free, s.State(t, key).State, "its work returned, so it was released")
	})
}

// The same with one that took over: that there has been an attempt before must not
// be forgotten for it.
func TestCloseDuringTakeover(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		_, err := s.Server().Claim(t.Context(), record, lock.Claim{Token: "vanished", Attempt: 1, Fingerprint: print1, Lease: time.Second, Linger: keep})
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		l := open(lock.WithRerunAbandoned(), lock.WithKeep(keep))
		s.Next(fault.Claim, nil, fault.Slow(50*time.Millisecond))
		got := make(chan error, 1)
		go func() { _, _, err := l.Once(context.Background(), key, print1, nil); got <- err }()
		synctest.Wait()
		require.NoError(t, l.Close(t.Context()))
		require.ErrorIs(t, <-got, lock.ErrClosed)
		time.Sleep(2 * lease)
		e := s.State(t, record)
		require.Equal(t, []any{lock.Abandoned, 2}, []any{e.State, e.Attempt})
	})
}

// A claim that is granted while Close runs never reaches its work.
func TestCloseDuringClaim(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.Next(fault.Claim, fault.Slow(50*time.Millisecond))
		got := make(chan error, 1)
		go func() { _, err := l.Acquire(context.Background(), key); got <- err }()
		synctest.Wait()
		require.NoError(t, l.Close(t.Context()))
		require.ErrorIs(t, <-got, lock.ErrClosed)
		require.Equal(t, lock.Free, s.State(t, key).State)
	})
}

func TestCloseDrainsSweepsWithoutTheNetworksLag(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		s.Lag = time.Hour
		l := open()
		s.Every(fault.HangReply, fault.Claim, fault.Release)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.Every(nil, fault.Release)
		began := time.Now()
		require.NoError(t, l.Close(t.Context()))
		require.Less(t, time.Since(began), 3*budget)
		require.Equal(t, lock.Free, s.State(t, key).State)
	})
}

func TestCloseIsBoundedWhenTheStoreIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.Every(fault.HangRequest, fault.Settle, fault.Renew, fault.Claim, fault.Release)
		require.ErrorIs(t, e.Settle(t.Context(), nil, time.Second), lock.ErrUnknown)
		_, err = l.Acquire(t.Context(), lock.Key("user", "43"))
		require.ErrorIs(t, err, lock.ErrUnknown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, l.Close(ctx), context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), time.Second+budget)
		renewals := s.Count(fault.Renew)
		time.Sleep(time.Minute)
		require.LessOrEqual(t, s.Count(fault.Renew), renewals+1, "nothing goes on after Close")
	})
}

func TestFailOpenKeepsTheKeyShutInThisProcess(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithObserver(seen.observe))
		s.Every(fault.HangReply, fault.Claim)
		hold := new(failopen.Hold)
		_, err := l.Acquire(failopen.With(t.Context(), hold), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		require.NotNil(t, hold.End)
		require.Equal(t, 1, seen.count(lock.EventBypassed))

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

type classified struct{ error }

func (classified) Class() string { return "OOM" }

func TestTroubleIsLoggedOncePerClass(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var out bytes.Buffer
		l := open(lock.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		s.Every(func(context.Context, func() error) error {
			return classified{errors.Join(lock.ErrNotApplied, errors.New("OOM command not allowed"))}
		}, fault.Claim)
		for range 20 {
			_, err := l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrUnavailable)
		}
		require.Equal(t, 1, strings.Count(out.String(), "class=OOM"))
		require.NotContains(t, out.String(), key)
		time.Sleep(time.Minute)
		_, _ = l.Acquire(t.Context(), key)
		require.Equal(t, 2, strings.Count(out.String(), "class=OOM"))
	})
}

func TestObserverCannotBreakARequest(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		var out bytes.Buffer
		var seen events
		l := open(
			lock.WithLogger(slog.New(slog.NewTextHandler(&out, nil))),
			lock.WithObserver(func(context.Context, lock.Event) { panic("observer") }),
			lock.WithObserver(seen.observe),
		)
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		require.Equal(t, 1, seen.count(lock.EventClaimed))
		require.Equal(t, 1, seen.count(lock.EventReleased))
		require.Contains(t, out.String(), "panic")
		require.Equal(t, "user", seen.seen[0].Name)
		require.Equal(t, key, seen.seen[0].Key)
	})
}
