package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// A takeover whose answers were lost is continued under the same token. It does not refuse
// this process, and the run has its attempt number, since no other run came between.
func TestLostTakeoverIsContinued(t *testing.T) {
	for name, tt := range map[string]struct {
		lost  fault.Func
		later time.Duration
	}{
		"applied, at once":               {fault.HangReply, 0},
		"applied, while it is held":      {fault.LoseReply, lease / 2},
		"applied, when it has lapsed":    {fault.HangReply, 2 * lease},
		"not applied":                    {fault.HangRequest, 0},
		"not applied, and a while later": {fault.LoseRequest, 2 * lease},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var f effect
			opts := []lock.Option{lock.WithKeep(time.Hour), lock.WithRerunAbandoned()}
			crash(t, s, func(context.Context) {}, opts...)
			s.Every(nil, fault.Settle, fault.Release, fault.Renew)
			time.Sleep(lease)
			l, other := open(opts...), open(opts...)
			s.Next(fault.Claim, nil).Every(tt.lost, fault.Claim) // the first claim finds the abandoned entry
			_, _, err := l.Once(t.Context(), key, print1, f.run("never"))
			require.ErrorIs(t, err, lock.ErrUnknown)
			s.Every(nil, fault.Claim)
			time.Sleep(tt.later)

			_, _, err = l.Once(t.Context(), key, []byte("another"), f.run("never"))
			require.ErrorIs(t, err, lock.ErrMismatch)
			receipt, replayed, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				require.Equal(t, 2, lock.Attempt(ctx))
				_, _, err := other.Once(t.Context(), key, print1, f.run("never"))
				require.ErrorIs(t, err, lock.ErrHeld)
				time.Sleep(2 * lease) // it is renewed like any other
				return []byte("answer"), nil
			})
			require.NoError(t, err)
			require.False(t, replayed)
			require.Equal(t, "answer", string(receipt))
			require.Equal(t, 2, s.State(t, record).Attempt)
			require.Zero(t, f.runs.Load())
			s.Free(t, record)
		})
	}
}

// The answer to the renewal that adopts the takeover can be lost as well, and
// another process can have taken over meanwhile.
func TestALostTakeoverThatIsTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f effect
		opts := []lock.Option{lock.WithKeep(time.Hour), lock.WithRerunAbandoned()}
		crash(t, s, func(context.Context) {}, opts...)
		s.Every(nil, fault.Settle, fault.Release, fault.Renew)
		time.Sleep(lease)
		l, other := open(opts...), open(opts...)
		s.Next(fault.Claim, nil).Every(fault.HangReply, fault.Claim)
		_, _, err := l.Once(t.Context(), key, print1, f.run("never"))
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.Every(nil, fault.Claim)
		s.Every(fault.HangReply, fault.Renew)
		_, _, err = l.Once(t.Context(), key, print1, f.run("never"))
		require.ErrorIs(t, err, lock.ErrUnknown)
		s.Every(nil, fault.Renew)
		time.Sleep(lease)
		_, _, err = other.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.Equal(t, 3, lock.Attempt(ctx))
			_, _, err := l.Once(t.Context(), key, print1, f.run("never"))
			require.ErrorIs(t, err, lock.ErrHeld)
			return []byte("theirs"), nil
		})
		require.NoError(t, err)
		require.Equal(t, "theirs", must.Replay(t)(l.Once(t.Context(), key, print1, f.run("never"))))
		require.Zero(t, f.runs.Load())
		s.Free(t, record)
	})
}

// A Locker continues a takeover without an answer by a renewal. If that call fails, too, the next
// call of this process is not refused because of it.
func TestFaultsOfGoingOnWithALostTakeover(t *testing.T) {
	for name, f := range map[string][]fault.Func{
		"renew lost all":  {fault.LoseReply, fault.LoseReply, fault.LoseReply, fault.LoseReply, fault.LoseReply, fault.LoseReply, fault.LoseReply, fault.LoseReply},
		"renew hangs":     {fault.HangReply, fault.HangReply},
		"renew req hangs": {fault.HangRequest, fault.HangRequest},
		"renew refused":   {fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse, fault.Refuse},
		"renew late":      {fault.Late(lease / 2), fault.Late(lease)},
		"renew panics":    {func(_ context.Context, apply func() error) error { _ = apply(); panic("a hook's") }},
		"renew denied":    {denied},
		"entry gone":      {func(context.Context, func() error) error { return nil }},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var f1 effect
			opts := []lock.Option{lock.WithKeep(10 * time.Second), lock.WithRerunAbandoned()}
			crash(t, s, func(context.Context) {}, opts...)
			time.Sleep(lease)
			l := open(opts...)
			s.Next(fault.Claim, nil, fault.HangReply, fault.HangReply)
			_, _, err := l.Once(t.Context(), key, print1, f1.run("a"))
			require.ErrorIs(t, err, lock.ErrUnknown)
			s.Next(fault.Renew, f...)
			done := make(chan error, 1)
			go func() {
				err := context.Canceled
				defer func() { done <- err }()
				_, _, err = l.With(lock.WithLease(2*lease), lock.WithBudget(budget/2)).Once(context.Background(), key, print1, f1.run("b"))
			}()
			err = <-done
			s.Skip(fault.Renew)
			if err == nil {
				return
			}
			_, _, err = l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				require.Equal(t, 2, lock.Attempt(ctx))
				return []byte("c"), nil
			})
			require.NoError(t, err, "no-self-conflict")
			time.Sleep(time.Minute)
			require.Zero(t, l.Stats().Backlog)
			require.Zero(t, l.Stats().Active)
		})
	}
}

// no-self-conflict: the renewal that adopts a lost takeover is applied, has no answer, and
// prolongs the entry. Its Locker remembers the token for as long as the prolonged entry can
// last, not only for as long as the entry of the claim can last.
func TestALostAdoptionIsRemembered(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var f1 effect
		s.Lag = 0
		opts := []lock.Option{lock.WithKeep(10 * time.Second), lock.WithRerunAbandoned()}
		crash(t, s, func(context.Context) {}, opts...)
		time.Sleep(lease)
		l := open(opts...)
		s.Next(fault.Claim, nil, fault.HangReply, fault.HangReply)
		_, _, err := l.Once(t.Context(), key, print1, f1.run("a"))
		require.ErrorIs(t, err, lock.ErrUnknown)
		for range 12 {
			time.Sleep(2 * time.Second)
			s.Next(fault.Renew, fault.HangReply, fault.HangReply)
			s.Every(fault.HangRequest, fault.Claim)
			_, err := l.Acquire(t.Context(), "another") // so that old ones are forgotten
			require.Error(t, err)
			s.Every(nil, fault.Claim)
			_, _, err = l.Once(t.Context(), key, print1, f1.run("b"))
			require.ErrorIs(t, err, lock.ErrUnknown)
		}
		s.Skip(fault.Renew)
		_, _, err = l.Once(t.Context(), key, print1, f1.run("b"))
		require.NoError(t, err, "no-self-conflict")
		s.Free(t, record)
	})
}
