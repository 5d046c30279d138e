package lock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// Close waits for work, also for work that runs unprotected.
func TestCloseWaitsForHolders(t *testing.T) {
	for name, claim := range map[string]fault.Func{"protected": nil, "unprotected": fault.Refuse} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithFailOpen())
			s.Every(claim, fault.Claim)
			e := acquired(t, l, key)
			time.AfterFunc(2*lease, func() { _ = e.Release(context.Background()) })
			began := time.Now()
			require.NoError(t, l.Close(t.Context()))
			require.Equal(t, 2*lease, time.Since(began))
			require.Equal(t, lock.Free, s.State(t, key).State)
			require.NoError(t, l.Close(t.Context()))
			require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrClosed)
		})
	}
}

func TestCloseCancelsHoldersAndGivesThemABudget(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		done := make(chan error, 1)
		go func() {
			done <- l.Do(context.Background(), key, func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		synctest.Wait()
		ctx := within(t, time.Second)
		require.ErrorIs(t, func() error { _ = l.Close(ctx); return <-done }(), lock.ErrClosed)
		require.Equal(t, lock.Free, s.State(t, key).State, "its work returned, so it was released")
	})
}

// A loss is reported before Close returns, also if the work has ended meanwhile: its logger may
// be the log of a test that is over then.
func TestCloseWaitsForTheReportOfALoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		reported := false
		l := open(lock.WithObserver(func(_ context.Context, e lock.Event) {
			if e.Kind == lock.EventLost {
				time.Sleep(time.Second)
				reported = true
			}
		}))
		s.Every(fault.Refuse, fault.Renew)
		e := acquired(t, l, key)
		<-e.Context().Done()
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrLost)
		require.NoError(t, l.Close(t.Context()))
		require.True(t, reported)
	})
}

func TestCloseDuringClaim(t *testing.T) {
	for of, claim := range map[string]func(l *lock.Locker, ticket string) (any, error){
		"a key":    func(l *lock.Locker, _ string) (any, error) { return l.Acquire(context.Background(), key) },
		"a set":    func(l *lock.Locker, _ string) (any, error) { return l.AcquireAll(context.Background(), setKeys) },
		"a ticket": func(l *lock.Locker, ticket string) (any, error) { return l.Resume(context.Background(), ticket) },
	} {
		bubbleCase(t, of, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			ticket, err := acquired(t, open(), "resumed").HandOver(t.Context(), patience)
			require.NoError(t, err)
			l := open()
			s.Next(fault.Claim, fault.Slow(budget/6))
			got := make(chan error, 1)
			go func() { _, err := claim(l, ticket); got <- err }()
			synctest.Wait()
			require.NoError(t, l.Close(t.Context()))
			require.ErrorIs(t, <-got, lock.ErrClosed)
			requireFree(t, s, append(setKeys, key)...)
			require.Equal(t, of != "a ticket", s.State(t, "resumed").State == lock.Held)
		})
	}
}

// A run that has taken over gives the record back as it was: the earlier attempt must not be forgotten.
func TestCloseDuringTakeover(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		abandoned(t, s)
		s.Next(fault.Claim, nil, fault.Slow(50*time.Millisecond))
		got := make(chan error, 1)
		go func() { _, _, err := l.Once(context.Background(), key, print1, nil); got <- err }()
		synctest.Wait()
		require.NoError(t, l.Close(t.Context()))
		require.ErrorIs(t, <-got, lock.ErrClosed)
		time.Sleep(2 * time.Millisecond)
		e := s.State(t, record)
		require.Equal(t, []any{lock.Abandoned, 1}, []any{e.State, e.Attempt})
	}, lock.WithRerunAbandoned(), lock.WithKeep(keep))
}

func TestCloseDrainsCleanUpsWithoutTheNetworksLag(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		s.Lag = time.Hour
		l := open()
		s.Every(fault.HangReply, fault.Claim, fault.Release)
		require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrUnknown)
		s.Every(nil, fault.Release)
		began := time.Now()
		require.NoError(t, l.Close(t.Context()))
		require.Less(t, time.Since(began), 3*budget)
		require.Equal(t, lock.Free, s.State(t, key).State)
	})
}

func TestCloseIsBoundedWhenTheStoreIsGone(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		e := acquired(t, l, key)
		s.Every(fault.HangRequest, fault.Settle, fault.Renew, fault.Claim, fault.Release)
		require.ErrorIs(t, e.Settle(t.Context(), nil, time.Second), lock.ErrUnknown)
		require.ErrorIs(t, l.Do(t.Context(), lock.Key("user", "43"), nil), lock.ErrUnknown)
		ctx := within(t, time.Second)
		began := time.Now()
		require.ErrorIs(t, l.Close(ctx), context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), time.Second+budget)
		renewals := s.Count(fault.Renew)
		time.Sleep(time.Minute)
		require.LessOrEqual(t, s.Count(fault.Renew), renewals+1, "nothing goes on after Close")
	})
}

// Close does not free a key under work that runs on. The lease lapses without an event: an observer may be
// closed, too.
func TestCloseDoesNotReleaseUnderWork(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen atomic.Int32
		l, other := open(lock.WithObserver(func(context.Context, lock.Event) { seen.Add(1) })), open()
		e := acquired(t, l, key)
		ctx := within(t, time.Second)
		require.ErrorIs(t, l.Close(ctx), context.DeadlineExceeded)
		before := seen.Load()
		require.ErrorIs(t, context.Cause(e.Context()), lock.ErrClosed)
		requireHeld(t, other)
		time.Sleep(lease)
		requireFree(t, s, key) // not renewed
		require.Equal(t, before, seen.Load())
		_ = e.Release(t.Context()) // the work returns at last
	})
}

// Close sends the settles of the background at once. Their usual back-off is longer than its
// deadline.
func TestCloseExpeditesSettles(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		var f effect
		s.Every(fault.HangRequest, fault.Settle)
		must.Run(t)(l.Once(t.Context(), key, print1, f.run("answer")))
		time.Sleep(21 * time.Second)
		s.Every(nil, fault.Settle)
		ctx := within(t, 2*time.Second)
		began := time.Now()
		err := l.Close(ctx)
		t.Logf("Close took %v: %v", time.Since(began), err)
		require.Equal(t, lock.Settled, s.State(t, record).State, "the store was there all the time")
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Second)
	}, lock.WithKeep(keep))
}

// The budget that Close has after the end of its context is for such a settle, too.
func TestCloseRepeatsASettleAfterTheEndOfItsContext(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		s.Every(fault.HangRequest, fault.Settle)
		require.ErrorIs(t, acquired(t, l, key).Settle(t.Context(), nil, time.Minute), lock.ErrUnavailable)
		time.Sleep(budget / 2) // the first repeat is in flight, and will get no answer
		s.Every(nil, fault.Settle)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, l.Close(ctx))
		require.Equal(t, lock.Settled, s.State(t, key).State)
	})
}

// A claim that was left in flight may land until it is answered, or lost: Close waits, and leaves no entry.
func TestCloseWaitsForCallsThatAreLeftBehind(t *testing.T) {
	for name, outcome := range map[string]send.Landing{"answered": send.Answered, "lost": send.Unanswered} {
		bubbleOverCase(t, name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			s.Lag = longLag
			var left leftClaim
			l := open()
			s.Next(fault.Claim, left.leave, full)
			require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrUnknown)
			time.AfterFunc(time.Minute, func() {
				_ = left.apply()
				left.flight.Arrive(outcome)
			})
			began := time.Now()
			require.NoError(t, l.Close(t.Context()))
			require.InDelta(t, time.Minute, time.Since(began), float64(time.Second))
			requireFree(t, s, key)
		})
	}
}
