package lock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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

		e, err = l.Acquire(t.Context(), key)
		require.NoError(t, err)
		time.Sleep(2 * lease)
		s.next(settle, func(context.Context, func() error) error { s.forget(t, key); return errEOF })
		require.ErrorIs(t, e.Settle(t.Context(), nil, lease), lock.ErrLost, "the receipt would still be there, however long the lease was held before")
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
			case time.Since(givenUp) < s.lag: // it may land yet, and that is known
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

// A settle that is not answered yet frees nothing: another request under its key is
// a mismatch, at once. After a release that is not answered the key is as good as
// free.
func TestAnotherRequestBehindAnUnansweredEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open()
		s.every(hangRequest, settle, release)
		_, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		began := time.Now()
		_, _, err = l.Once(t.Context(), key, print2, f.run("other"))
		require.ErrorIs(t, err, lock.ErrMismatch)
		require.Zero(t, time.Since(began))

		_, _, err = l.Once(t.Context(), "another", print1, f.fail(errCard))
		require.ErrorIs(t, err, errCard)
		s.every(nil, release)
		_, replayed, err := l.Once(t.Context(), "another", print2, f.run("other"))
		require.NoError(t, err)
		require.False(t, replayed)
	})
}

// The failure of a run that has lost its lease may be that loss. It is not shared,
// in the moment before the key is given up either.
func TestAFailureAfterALossIsNotShared(t *testing.T) {
	bubble(t, func(t *testing.T, _ *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithWait(time.Minute))
		go func() {
			_, _, _ = l.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
				time.Sleep(time.Second)
				lock.MarkLost(ctx)
				return nil, errCard
			})
		}()
		synctest.Wait()
		receipt, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		require.Equal(t, "answer", string(receipt))
	})
}

// A waiter left in the queue behind a claimer that leaves is notified of the next one's
// grant when that comes.
func TestThoseLeftInTheQueueHearOfTheNextGrant(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		s.next(claim, hangRequest)
		ctx, leave := context.WithTimeout(t.Context(), answersIn)
		defer leave()
		go func() { _, _ = l.Acquire(ctx, key) }()
		synctest.Wait()
		began := time.Now()
		var refused atomic.Int32
		for _, err := range meet(meeting, func(int) error {
			e, err := l.Acquire(context.Background(), key)
			assert.Equal(t, answersIn, time.Since(began))
			if err == nil {
				time.Sleep(time.Second)
				err = e.Release(context.Background())
			} else if assert.ErrorIs(t, err, lock.ErrHeld) {
				refused.Add(1)
				err = nil
			}
			return err
		}) {
			require.NoError(t, err)
		}
		require.EqualValues(t, meeting-1, refused.Load())
	})
}

// Who needs a key whose release is being asked for again, without an answer, has it
// asked for once more after that, without the pause of a long outage.
func TestAReleaseThatIsAskedForIsRepeatedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithLease(time.Minute))
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		var came time.Time
		var mu sync.Mutex
		asked, began := make(chan struct{}), time.Now()
		s.every(func(_ context.Context, apply func() error) error {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case time.Since(began) < 20*time.Second: // until the pause is five
				return errEOF
			case came.IsZero():
				came = time.Now()
				close(asked)
				return errEOF
			case time.Since(came) < budget:
				return errEOF
			}
			return apply()
		}, release)
		require.ErrorIs(t, e.Release(t.Context()), lock.ErrUnavailable)
		<-asked
		time.Sleep(budget / 2)
		granted(t, l.With(lock.WithBudget(2*budget)))
	})
}
