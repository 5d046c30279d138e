package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

const (
	longLag = 2 * time.Minute       // of the network
	soon    = 50 * time.Millisecond // until a late reply comes
)

// A claim that was left in flight, while the next send of it was answered, is removed once: when
// its reply has come, or, if the reply is lost, when the entry is found. Otherwise it may land for
// as long as the network takes.
func TestArrivalEndsTheCleanUp(t *testing.T) {
	for name, outcome := range map[string]send.Landing{"answered": send.Answered, "lost": send.Lost} {
		t.Run(name, func(t *testing.T) {
			for when, land := range map[string]bool{"landed": true, "not landed": false} {
				bubbleOverCase(t, when, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
					s.Lag = longLag
					var left leftClaim
					l := open()
					s.Next(fault.Claim, left.leave)
					require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
					time.Sleep(soon)
					require.Equal(t, 1, s.Count(fault.Release), "what is likely to be answered is waited for")
					if land {
						require.NoError(t, left.apply())
					}
					left.flight.Arrive(outcome)
					synctest.Wait()
					require.Equal(t, 2, s.Count(fault.Release))
					require.Equal(t, lock.Free, s.State(t, key).State)
					time.Sleep(longLag / 2)
					enough := outcome == send.Answered || land
					require.Equal(t, enough, s.Count(fault.Release) == 2, "one is enough only if nothing can land any more")
					if !enough {
						require.NoError(t, left.apply())
						time.Sleep(longLag/2 + time.Second)
						require.Equal(t, lock.Free, s.State(t, key).State)
					}
					began := time.Now()
					require.NoError(t, l.Close(t.Context()))
					if enough {
						require.Zero(t, time.Since(began), "there is nothing left to do")
					}
				})
			}
		})
	}
}

// The same if no caller got the key, and if the reply comes only when Close waits.
func TestArrivalEndsClose(t *testing.T) {
	for name, outcome := range map[string]send.Landing{"answered": send.Answered, "lost": send.Lost} {
		bubbleOverCase(t, name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			s.Lag = longLag
			var left leftClaim
			l := open()
			s.Next(fault.Claim, left.leave, full)
			_, err := l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrUnknown)
			time.AfterFunc(10*time.Second, func() {
				_ = left.apply()
				left.flight.Arrive(outcome)
			})
			began := time.Now()
			require.NoError(t, l.Close(t.Context()))
			took := time.Since(began)
			require.GreaterOrEqual(t, took, 10*time.Second, "it may land until then")
			require.Less(t, took, 11*time.Second)
			require.Equal(t, lock.Free, s.State(t, key).State)
		})
	}
}

// A reply that does not come in time is no longer hoped for.
func TestArrivalIsNotWaitedForLong(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var left leftClaim
		s.Next(fault.Claim, left.leave)
		require.NoError(t, open().Do(t.Context(), key, func(context.Context) error { return nil }))
		time.Sleep(2 * time.Second)
		require.NoError(t, left.apply()) // the server has it, and its reply is lost
		time.Sleep(6 * time.Second)
		require.Equal(t, lock.Free, s.State(t, key).State)
		left.flight.Arrive(send.Lost)
	})
}

// Between the landing and the late reply, the token is known as dead: a caller
// that meets it in this process removes it. To others it looks like any other.
func TestLandedBeforeItsArrival(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		s.Lag = longLag
		var left leftClaim
		l, other := open(), open()
		s.Next(fault.Claim, left.leave)
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		require.NoError(t, left.apply())
		_, err := other.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err, "it must not be locked out by itself")
		left.flight.Arrive(send.Answered)
		synctest.Wait()
		require.Equal(t, lock.Held, s.State(t, key).State, "the clean-up leaves the entry of the next caller")
		require.NoError(t, e.Context().Err())
		require.NoError(t, e.Release(t.Context()))
	})
}

// A store may return from a call before its command is through, if it says so:
// the clean-up of the claim goes on for as long as a goroutine carries it, and Close waits.
func TestCallsThatAreLeftBehind(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"reported": false, "not reported": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory := memstore.New()
				s := &lingering{Store: memory, silent: silent, landed: make(chan struct{})}
				l := lock.New(s, lock.WithLogger(quiet), lock.WithLease(time.Hour), lock.WithMaxHold(2*time.Hour))
				_, err := l.Acquire(t.Context(), "k")
				require.ErrorIs(t, err, lock.ErrUnknown)
				<-s.landed
				time.Sleep(4 * time.Second) // less than its lease
				e := must.Entry(t)(memory.Get(t.Context(), "k"))
				if silent {
					require.Equal(t, lock.Held, e.State, "an orphan, as no process looked for it any more")
				} else {
					require.Equal(t, lock.Free, e.State)
				}
				require.NoError(t, l.Close(t.Context()))
			})
		})
	}
}

// A claim in flight is removed once before its flight ends, and again when it has ended. More
// removals in between would be useless.
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
