package lock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// leaving is a context that ends as its holder begins to wait for that.
type leaving struct {
	context.Context //nolint:containedctx // it is one
	leave           func()
	ended           chan struct{}
}

func (c *leaving) Done() <-chan struct{} {
	select {
	case <-c.ended:
	default:
		close(c.ended)
		c.leave()
	}
	return c.ended
}

func (c *leaving) Err() error {
	select {
	case <-c.ended:
		return context.Canceled
	default:
		return nil
	}
}

// A waiter that leaves in the very moment in which it is given the key does not
// keep it. Both are so when it begins to wait here, and it looks at either first.
func TestAWaiterThatLeavesDoesNotKeepTheKeyItWasGiven(t *testing.T) {
	t.Parallel()
	l := lock.New(lock.NewMemory())
	waits := l.With(lock.WithWait(time.Minute))
	for range 100 {
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		ctx := &leaving{Context: t.Context(), ended: make(chan struct{})}
		ctx.leave = func() { require.NoError(t, e.Release(t.Context())) }
		_, err = waits.Acquire(ctx, key)
		require.ErrorIs(t, err, context.Canceled)
		granted(t, l)
	}
	require.NoError(t, l.Close(t.Context()))
}

// A "no" to a settle says that the entry is not ours, whatever became of the
// sends before: a settle finds its own receipt.
func TestANoAfterAnUnansweredSettleIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		freed := func(context.Context, func() error) error { // by an operator, and the request is lost
			s.forget(t, record)
			_, _, err := other.Once(context.WithoutCancel(t.Context()), key, print1, func(context.Context) ([]byte, error) {
				return []byte("theirs"), nil
			})
			if err != nil {
				t.Error(err)
			}
			return errEOF
		}
		receipt, replayed, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
			s.next(settle, freed)
			return []byte("mine"), nil
		})
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, "theirs", string(receipt), "there is one answer only")

		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		s.next(settle, func(context.Context, func() error) error { s.forget(t, key); return errEOF })
		require.ErrorIs(t, e.Settle(t.Context(), nil, time.Hour), lock.ErrLost)
		granted(t, l)
	})
}

// A sweep that was answered once goes on after an error: what it had overtaken may
// come after that.
func TestASweepGoesOnAfterAnError(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(time.Hour), lock.WithMaxHold(time.Hour))
		var land atomic.Pointer[func() error]
		s.every(func(ctx context.Context, apply func() error) error {
			land.Store(&apply)
			return hangRequest(ctx, apply)
		}, claim)
		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.every(nil, claim)
		givenUp := time.Now()
		var answered, failed atomic.Int32
		s.every(func(_ context.Context, apply func() error) error {
			switch {
			case time.Since(givenUp) <= s.lag: // it may land yet, and that is known
			case answered.Add(1) == 1:
			case failed.CompareAndSwap(0, 1):
				if err := (*land.Load())(); err != nil {
					t.Error(err)
				}
				return errEOF
			}
			return apply()
		}, release)
		time.Sleep(s.lag + 20*time.Second)
		require.EqualValues(t, 1, failed.Load())
		require.Equal(t, lock.Free, s.state(t, key).State)
		granted(t, l)
	})
}

// A lease that is granted while the schedule of renewals looks for such leases is
// found by it or makes it look again.
func TestALeaseGrantedDuringTheLookIsRenewed(t *testing.T) {
	t.Parallel()
	require.True(t, lock.GrantWhileLooking())
}
