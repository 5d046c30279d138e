package lock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestOnceRunsOnceAndReplays(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		var seen events
		l, other := open(lock.WithKeep(keep), lock.WithObserver(seen.observe)), open(lock.WithKeep(keep))
		require.Equal(t, "answer", must.Run(t)(l.Once(t.Context(), key, print1, f.run("answer"))))
		for _, l := range []*lock.Locker{l, other} {
			require.Equal(t, "answer", must.Replay(t)(l.Once(t.Context(), key, print1, f.run("another"))))
		}
		require.EqualValues(t, 1, f.runs.Load())
		require.Equal(t, 3, s.Count(fault.Claim))
		require.Equal(t, 1, s.Count(fault.Settle))
		require.Equal(t, 1, seen.count(lock.EventReplayed))

		_, _, err := l.Once(t.Context(), key, print2, f.run("another"))
		require.ErrorIs(t, err, lock.ErrMismatch)
		_, _, err = l.Once(t.Context(), lock.Key("user", "43"), print2, f.run("another"))
		require.NoError(t, err)
		require.EqualValues(t, 2, f.runs.Load())

		time.Sleep(keep)
		must.Run(t)(l.Once(t.Context(), key, print2, f.run("later")))
	})
}

func TestOnceWhileTheFirstRuns(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		here, there := open(), open()
		_, _, err := here.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			for _, l := range []*lock.Locker{here, there} {
				_, _, err := l.Once(ctx, key, print1, nil)
				require.ErrorIs(t, err, lock.ErrHeld)
				_, _, err = l.Once(ctx, key, print2, nil)
				require.ErrorIs(t, err, lock.ErrMismatch, "422 comes before 409")
			}
			require.Equal(t, 1, lock.Attempt(ctx))
			_, ok := lock.FromContext(ctx)
			require.False(t, ok, "the lease of a receipt protects no resource")
			return nil, nil
		})
		require.NoError(t, err)
		require.Zero(t, lock.Attempt(t.Context()))
		require.Error(t, lock.Commit(t.Context()))
	})
}

func TestOnceFailureFreesTheKey(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open()
		_, _, err := l.Once(t.Context(), key, print1, f.fail(errors.New("mine")))
		require.ErrorContains(t, err, "mine")
		require.Equal(t, lock.Free, s.State(t, record).State)
		require.PanicsWithValue(t, 7, func() {
			_, _, _ = l.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) { panic(7) })
		})
		require.Equal(t, lock.Free, s.State(t, record).State)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, _ = l.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil })
		})
		wg.Wait()
		require.Equal(t, lock.Free, s.State(t, record).State)
		must.Run(t)(l.Once(t.Context(), key, print2, f.run("ok")))
	})
}

func TestDetachedWorkOutlivesItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithDetached())
		ctx, cancel := context.WithCancel(t.Context())
		receipt, _, err := l.Once(ctx, key, print1, func(ctx context.Context) ([]byte, error) {
			cancel()
			time.Sleep(time.Second)
			return []byte("answer"), ctx.Err()
		})
		require.NoError(t, err)
		require.Equal(t, "answer", string(receipt))
		err = l.With(lock.WithMaxHold(lease)).Do(t.Context(), key, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, lock.ErrLost, "but not its lease")
	})
}

// Goroutines of a group end each other with their errors. A refusal because of the receipt of
// another key does not concern this key: Once must not mistake it for its own receipt.
func TestRefusalThatEndsTheContextIsNoReplay(t *testing.T) {
	t.Parallel()
	l := lockerOver(t, memstore.New())
	lease := acquired(t, l, "order=7")
	require.NoError(t, lease.Settle(t.Context(), []byte("shipped"), time.Hour))
	_, err := l.Acquire(t.Context(), "order=7")
	require.ErrorIs(t, err, lock.ErrSettled)

	ctx, end := context.WithCancelCause(t.Context())
	end(err)
	receipt, replayed, err := l.Once(ctx, "order=8", nil, nil)
	require.ErrorIs(t, err, lock.ErrSettled, "the cause of ctx")
	require.False(t, replayed)
	require.Empty(t, receipt)
}
