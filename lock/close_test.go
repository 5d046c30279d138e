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
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestCloseWaitsForHolders(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		e := acquired(t, l, key)
		time.AfterFunc(2*time.Second, func() { _ = e.Release(context.Background()) })
		began := time.Now()
		require.NoError(t, l.Close(t.Context()))
		require.Equal(t, 2*time.Second, time.Since(began))
		require.Equal(t, lock.Free, s.State(t, key).State)
		require.NoError(t, l.Close(t.Context()))
		_, err := l.Acquire(t.Context(), key)
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

// The same with a run that took over: the earlier attempt must not be forgotten.
func TestCloseDuringTakeover(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		must.Entry(t)(s.Server().Claim(t.Context(), record, lock.Claim{Token: "vanished", Attempt: 1, Fingerprint: print1, Lease: time.Second, Linger: keep}))
		time.Sleep(2 * time.Second)
		l := open(lock.WithRerunAbandoned(), lock.WithKeep(keep))
		s.Next(fault.Claim, nil, fault.Slow(50*time.Millisecond))
		got := make(chan error, 1)
		go func() { _, _, err := l.Once(context.Background(), key, print1, nil); got <- err }()
		synctest.Wait()
		require.NoError(t, l.Close(t.Context()))
		require.ErrorIs(t, <-got, lock.ErrClosed)
		time.Sleep(2 * time.Millisecond)
		e := s.State(t, record)
		require.Equal(t, []any{lock.Abandoned, 1}, []any{e.State, e.Attempt})
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

func TestCloseDrainsCleanUpsWithoutTheNetworksLag(t *testing.T) {
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
		e := acquired(t, l, key)
		s.Every(fault.HangRequest, fault.Settle, fault.Renew, fault.Claim, fault.Release)
		require.ErrorIs(t, e.Settle(t.Context(), nil, time.Second), lock.ErrUnknown)
		_, err := l.Acquire(t.Context(), lock.Key("user", "43"))
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

// attack B6: Close must not free a key under work that runs on.
func TestCloseDoesNotReleaseUnderWork(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		e := acquired(t, l, key)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, context.Cause(e.Context()), lock.ErrClosed)
		require.Equal(t, lock.Held, s.State(t, key).State)
		_, err = other.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrHeld)
		time.Sleep(lease)
		require.Equal(t, lock.Free, s.State(t, key).State, "left to lapse, not renewed")
		_ = e.Release(t.Context()) // the work returns at last
	})
}

// A lease that is left to lapse is silent after Close: an observer may be closed, too.
func TestNoEventsAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen atomic.Int32
		l := open(lock.WithObserver(func(context.Context, lock.Event) { seen.Add(1) }))
		e := acquired(t, l, key)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, l.Close(ctx))
		before := seen.Load()
		time.Sleep(2 * lease)
		require.Equal(t, before, seen.Load())
		_ = e.Release(t.Context())
	})
}

// Close sends the settles of the background at once. Their usual back-off is longer than its
// deadline.
func TestCloseExpeditesSettles(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep))
		s.Every(fault.HangRequest, fault.Settle)
		_, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		time.Sleep(21 * time.Second)
		s.Every(nil, fault.Settle)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		err = l.Close(ctx)
		t.Logf("Close took %v: %v", time.Since(began), err)
		require.Equal(t, lock.Settled, s.State(t, record).State, "the store was there all the time")
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Second)
	})
}

// The budget that Close has after the end of its context is for such a settle, too.
func TestCloseRepeatsASettleAfterTheEndOfItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
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

func TestCloseEndsWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(lock.WithWait(time.Minute)), open()
		mine := acquired(t, l, key)
		theirs := acquired(t, other, lock.Key("user", "43"))
		results := make(chan error, 2)
		go func() { _, err := l.Acquire(context.Background(), key); results <- err }()
		go func() { _, err := l.Acquire(context.Background(), lock.Key("user", "43")); results <- err }()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- l.Close(context.Background()) }()
		require.ErrorIs(t, <-results, lock.ErrClosed)
		require.ErrorIs(t, <-results, lock.ErrClosed)
		require.NoError(t, mine.Release(t.Context()))
		require.NoError(t, theirs.Release(t.Context()))
		require.NoError(t, <-closed)
	})
}

func TestCloseWaitsForCallsThatAreLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &lingering{Store: memstore.New(), landed: make(chan struct{})}
		l := lock.New(s, lock.WithLogger(quiet))
		_, err := l.Acquire(t.Context(), "k")
		require.ErrorIs(t, err, lock.ErrUnknown)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		require.NoError(t, l.Close(ctx))
		require.GreaterOrEqual(t, time.Since(began), time.Minute-time.Second)
	})
}
