package lock_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

func TestSettleIsACoolDown(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		e := acquired(t, l, key)
		require.NoError(t, e.Settle(t.Context(), nil, 10*time.Second))
		require.Error(t, e.Context().Err())
		time.Sleep(time.Second)
		_, err := l.Acquire(t.Context(), key)
		var refused *lock.RefusedError
		require.ErrorAs(t, err, &refused)
		require.ErrorIs(t, err, lock.ErrSettled)
		require.Equal(t, 9*time.Second, refused.Entry.Left)
		require.NotContains(t, err.Error(), key)
		time.Sleep(9 * time.Second)
		granted(t, l)
		require.Panics(t, func() { _ = e.Settle(t.Context(), nil, 0) })
	})
}

// A settle that is not answered yet keeps the token alive. A
// duplicate must not delete the claim from under it.
func TestDuplicateDuringBackgroundSettle(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		e := acquired(t, l, key)
		s.Every(fault.HangRequest, fault.Settle)
		require.ErrorIs(t, e.Settle(t.Context(), []byte("answer"), time.Hour), lock.ErrUnknown)

		_, err := l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrUnavailable, "not refused: its own call is what is missing")
		require.NotErrorIs(t, err, lock.ErrHeld)
		require.Equal(t, lock.Held, s.State(t, key).State, "the claim was not deleted")

		time.Sleep(4 * lease)
		require.Equal(t, lock.Held, s.State(t, key).State, "a pending settle keeps renewing")
		s.Every(nil, fault.Settle)
		_, err = l.Acquire(t.Context(), key)
		require.ErrorIs(t, err, lock.ErrSettled, "the duplicate asked for the settle again, and met the receipt")
		require.Equal(t, []byte("answer"), s.State(t, key).Receipt)
		s.Free(t, key)
	})
}

// A settle without an answer loses neither the answer nor the key.
func TestSettleInTheBackground(t *testing.T) {
	for name, f := range map[string]fault.Func{"not applied": fault.Refuse, "request lost": fault.HangRequest, "reply lost": fault.HangReply} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var runs effect
			l, other := open(lock.WithKeep(keep)), open(lock.WithKeep(keep))
			s.Every(f, fault.Settle)
			require.Equal(t, "answer", must.Run(t)(l.Once(t.Context(), key, print1, runs.run("answer"))))
			time.Sleep(10 * lease)
			_, _, err := other.Once(t.Context(), key, print1, runs.run("again"))
			if err != nil {
				require.ErrorIs(t, err, lock.ErrHeld)
			}
			s.Every(nil, fault.Settle)
			time.Sleep(6 * time.Second)
			require.Equal(t, "answer", must.Replay(t)(other.Once(t.Context(), key, print1, runs.run("again"))))
			require.EqualValues(t, 1, runs.runs.Load())
		})
	}
}

// A "no" to a settle says that the entry is not ours, whether or not earlier
// sends were applied: a settle finds its own receipt.
func TestANoAfterAnUnansweredSettleIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l, other := open(), open()
		freed := func(context.Context, func() error) error { // by an operator, and the request is lost
			s.Free(t, record)
			_, _, err := other.Once(context.WithoutCancel(t.Context()), key, print1, func(context.Context) ([]byte, error) {
				return []byte("theirs"), nil
			})
			if err != nil {
				t.Error(err)
			}
			return io.EOF
		}
		receipt, replayed, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) {
			s.Next(fault.Settle, freed)
			return []byte("mine"), nil
		})
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, "theirs", string(receipt), "there is one answer only")

		e := acquired(t, l, key)
		s.Next(fault.Settle, func(context.Context, func() error) error { s.Free(t, key); return io.EOF })
		require.ErrorIs(t, e.Settle(t.Context(), nil, time.Hour), lock.ErrLost)

		e = acquired(t, l, key)
		time.Sleep(2 * lease)
		s.Next(fault.Settle, func(context.Context, func() error) error { s.Free(t, key); return io.EOF })
		require.ErrorIs(t, e.Settle(t.Context(), nil, lease), lock.ErrLost, "the receipt would still be there, however long the lease was held before")
		granted(t, l)
	})
}

// A settle that is not answered yet frees nothing: another request under its key is
// a mismatch, at once. After a release that is not answered the key is as good as
// free.
func TestAnotherRequestBehindAnUnansweredEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open()
		s.Every(fault.HangRequest, fault.Settle, fault.Release)
		_, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		began := time.Now()
		_, _, err = l.Once(t.Context(), key, print2, f.run("other"))
		require.ErrorIs(t, err, lock.ErrMismatch)
		require.Zero(t, time.Since(began))

		_, _, err = l.Once(t.Context(), "another", print1, f.fail(errCard))
		require.ErrorIs(t, err, errCard)
		s.Every(nil, fault.Release)
		must.Run(t)(l.Once(t.Context(), "another", print2, f.run("other")))
	})
}

// same-answer: the settle in the background used the caller's memory.
func TestReceiptIsTheCallersMemory(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep))
		s.Every(fault.HangRequest, fault.Settle)
		receipt, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		copy(receipt, "######") // it was returned: it is the caller's
		s.Every(nil, fault.Settle)
		time.Sleep(6 * time.Second)
		require.Equal(t, "answer", string(s.State(t, record).Receipt))
	})
}

// once, same-answer: the fingerprint of a running record is the caller's memory.
func TestFingerprintIsTheCallersMemory(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep))
		s.Every(fault.HangRequest, fault.Settle)
		buf := append([]byte(nil), print1...)
		_, _, err := l.Once(t.Context(), key, buf, f.run("answer"))
		require.NoError(t, err)
		copy(buf, print2) // a consumer's buffer, used for the next message
		_, _, err = l.Once(t.Context(), key, print1, f.run("again"))
		s.Every(nil, fault.Settle)
		time.Sleep(6 * time.Second)
		require.NotErrorIs(t, err, lock.ErrMismatch)
	})
}

// A receipt that is kept for less than the budget.
func TestShortKeep(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(50 * time.Millisecond))
		s.Next(fault.Settle, fault.HangReply)
		receipt, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		require.Equal(t, "answer", string(receipt))
	})
}

// The settle of a cool-down has no answer, and a renewal does not find the entry. The settle is
// given up, because there is no entry to settle.
func TestASettleOfAnEntryThatIsGoneIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		l := open()
		e := acquired(t, l, key)
		s.Every(fault.HangRequest, fault.Settle)
		require.ErrorIs(t, e.Settle(t.Context(), nil, time.Hour), lock.ErrUnavailable)
		require.Equal(t, 1, l.Stats().Backlog)
		s.Free(t, key)
		time.Sleep(3 * lease)
		require.Zero(t, l.Stats().Backlog)
	})
}
