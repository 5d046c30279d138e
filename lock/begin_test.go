package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

// A guard gets a run, or the entry that an earlier run has left, with the time that is left of it.
func TestBeginFindsTheEarlierReceipt(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithKeep(keep))
		run, _, err := l.Begin(t.Context(), key, print1, &lock.Submission{Guard: "orders", Label: "42"})
		require.NoError(t, err)
		require.Equal(t, 1, lock.Attempt(run.Context()))
		receipt, replayed, err := run.Settle(t.Context(), []byte("answer"))
		require.NoError(t, err)
		require.False(t, replayed)
		require.Equal(t, "answer", string(receipt))
		require.Error(t, run.Context().Err())
		time.Sleep(time.Minute)
		run, earlier, err := l.Begin(t.Context(), key, print1, &lock.Submission{AskLeft: true})
		require.NoError(t, err)
		require.Nil(t, run)
		require.Equal(t, "answer", string(earlier.Receipt))
		require.Equal(t, lock.Settled, earlier.State)
		require.Equal(t, key, earlier.Key)
		require.Equal(t, keep-time.Minute, earlier.Left.Round(time.Second))
		_, _, err = l.Begin(t.Context(), key, []byte("another"), nil)
		require.ErrorIs(t, err, lock.ErrMismatch)
	})
}

// The first of Settle and Fail ends the run.
func TestARunEndsOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		failed, _, err := l.Begin(t.Context(), key, print1, nil)
		require.NoError(t, err)
		_, _, err = failed.Fail(t.Context(), errMine)
		require.ErrorIs(t, err, errMine)
		require.Equal(t, lock.Free, s.State(t, record).State)
		settled, _, err := l.Begin(t.Context(), key, print1, nil)
		require.NoError(t, err)
		_, _, err = failed.Settle(t.Context(), []byte("late"))
		require.ErrorIs(t, err, lock.ErrLost)
		_, _, err = settled.Settle(t.Context(), []byte("answer"))
		require.NoError(t, err)
		_, _, err = settled.Fail(t.Context(), nil)
		require.NoError(t, err)
		_, err = settled.Ticket()
		require.Error(t, err)
		require.Equal(t, "answer", string(s.State(t, record).Receipt))
		require.Equal(t, 1, s.Count(fault.Settle))
		require.Equal(t, 1, s.Count(fault.Release))
	})
}

// A call that waits for a run gets the error of the run, or runs itself if there is none to share.
func TestAFailureIsShared(t *testing.T) {
	for name, shared := range map[string]error{"shared": errMine, "not shared": nil} {
		bubbleCase(t, name, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
			l := open(lock.WithWait(time.Minute))
			first, _, err := l.Begin(t.Context(), key, print1, nil)
			require.NoError(t, err)
			go func() {
				next, _, err := l.Begin(t.Context(), key, print1, nil)
				if shared == nil {
					if assert.NoError(t, err) {
						_, _, _ = next.Settle(t.Context(), nil)
					}
					return
				}
				var failed *lock.FailedRunError
				assert.ErrorAs(t, err, &failed)
				assert.Equal(t, shared, failed.Err)
				assert.NotErrorIs(t, err, shared, "it is the error of another call")
			}()
			synctest.Wait()
			_, _, err = first.Fail(t.Context(), shared)
			require.Equal(t, shared, err)
			synctest.Wait()
		})
	}
}

// The work of a run writes in its transaction, which Settle commits, once.
func TestARunCommitsItsTransaction(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		run, _, err := l.Begin(t.Context(), key, print1, nil)
		require.NoError(t, err)
		require.True(t, run.InTransaction())
		receipt, err := insert("mine")(run.Context())
		require.NoError(t, err)
		require.Empty(t, s.Effects())
		_, _, err = run.Settle(t.Context(), receipt)
		require.NoError(t, err)
		_, _, err = run.Settle(t.Context(), []byte("again"))
		require.NoError(t, err)
		require.Equal(t, 1, s.Count(faketx.Commit))
		next(t, s, "mine", l)
	})
}

// A commit without an answer stays unknown when it is asked for again.
func TestACommitWithoutAnAnswerStaysUnknown(t *testing.T) {
	txBubble(t, func(t *testing.T, s *faketx.Store, open func(...lock.Option) *lock.Locker) {
		run, _, err := open().Begin(t.Context(), key, print1, nil)
		require.NoError(t, err)
		receipt, err := insert("mine")(run.Context())
		require.NoError(t, err)
		s.Next(faketx.Commit, faketx.LoseReply)
		s.Every(faketx.Outcome, faketx.Hang)
		for range 2 {
			_, _, err = run.Settle(t.Context(), receipt)
			require.ErrorIs(t, err, lock.ErrUnknown)
			require.NotErrorIs(t, err, lock.ErrLost)
		}
		s.Every(faketx.Outcome, nil)
	})
}

// The work of a guard runs unprotected, inside of a run that is protected. It has no attempt of its own,
// and its effects are effects of the run around it.
func TestAttemptOfUnprotectedWorkInsideOfARun(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		outer, _, err := l.Begin(t.Context(), "outer", print1, nil)
		require.NoError(t, err)
		s.Every(fault.LoseRequest, fault.Claim)
		inner, _, err := l.With(lock.WithFailOpen()).Begin(outer.Context(), key, print1, nil)
		require.NoError(t, err)
		s.Every(nil, fault.Claim)
		require.Zero(t, lock.Attempt(inner.Context()))
		within, _, err := l.Begin(inner.Context(), "within", print1, nil)
		require.NoError(t, err)
		require.Equal(t, 1, lock.Attempt(within.Context()))
		require.NoError(t, lock.Commit(inner.Context()))
		require.True(t, outer.Committed())
		for _, run := range []*lock.Run{within, inner, outer} {
			_, _, err = run.Settle(t.Context(), nil)
			require.NoError(t, err)
		}
	})
}

// A run without a lease loses none, and it has no ticket, although another run has its key.
func TestARunWithoutALeaseHasNothingToKeep(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var seen events
		l := open(lock.WithFailOpen(), lock.WithRerunAbandoned(), lock.WithObserver(seen.observe))
		s.Every(fault.LoseRequest, fault.Claim)
		run, _, err := l.Begin(t.Context(), key, print1, nil)
		require.NoError(t, err)
		s.Every(nil, fault.Claim)
		other, _, err := open().Begin(t.Context(), key, print1, nil)
		require.NoError(t, err)
		none, err := run.NotePossibleEffect(t.Context(), nil)
		require.NoError(t, err)
		none()
		require.ErrorIs(t, run.Hold(t.Context(), nil), lock.ErrUnavailable)
		_, err = run.Ticket()
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.Zero(t, seen.count(lock.EventLost))
		for _, run := range []*lock.Run{run, other} {
			_, _, err = run.Settle(t.Context(), nil)
			require.NoError(t, err)
		}
	})
}

// The failure of a run is the cause with which an errgroup ends the context of its other calls. It is
// not the result of those: they have waited for no run.
func TestAFailureIsNoResultOfAnotherKey(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(&lock.FailedRunError{Err: errMine})
		_, replayed, err := open().Once(ctx, key, print1, func(context.Context) ([]byte, error) { return nil, nil })
		require.False(t, replayed)
		require.ErrorContains(t, err, "not acquired")
	})
}
