package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// A takeover is of something. A claim for one that lands after the record has
// ended finds nothing to take over, and leaves nothing behind: an entry of an
// attempt that no caller has made would say for as long as a record is kept that the
// outcome of it is not known.
func TestATakeoverThatLandsAfterTheRecordIsNoFreshClaim(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		const window = 5 * time.Second
		var f effect
		opts := []lock.Option{lock.WithKeep(window), lock.WithRerunAbandoned()}
		crash(t, s, func(context.Context) {}, opts...)
		s.every(nil, settle, release, renew)
		time.Sleep(lease)
		require.Equal(t, lock.Abandoned, s.state(t, record).State)
		l, other := open(opts...), open(lock.WithKeep(window))
		s.next(claim, nil, late(2*window)).every(hangRequest, claim)
		_, _, err := l.Once(t.Context(), key, print1, f.run("answer"))
		s.every(nil, claim)
		require.ErrorIs(t, err, lock.ErrUnknown)
		time.Sleep(3 * window)
		require.Equal(t, lock.Free, s.state(t, record).State, "after the takeover has landed")
		_, _, err = other.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.Equal(t, 1, lock.Attempt(ctx))
			return nil, nil
		})
		require.NoError(t, err, "nothing is remembered")
	})
}

// What was to be taken over ends while the takeover is on its way: the key is
// claimed as what it is.
func TestATakeoverOfWhatHasEndedIsAFirstAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var seen events
		opts := []lock.Option{lock.WithKeep(keep), lock.WithRerunAbandoned()}
		crash(t, s, func(context.Context) {}, opts...)
		s.every(nil, settle, release, renew)
		time.Sleep(lease)
		l := open(append(opts, lock.WithObserver(seen.observe))...)
		s.next(claim, nil, func(_ context.Context, apply func() error) error {
			s.forget(t, record) // an operator
			return apply()
		})
		_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.Equal(t, 1, lock.Attempt(ctx))
			return nil, nil
		})
		require.NoError(t, err)
		require.Equal(t, 1, s.state(t, record).Attempt)
		require.Zero(t, seen.count(lock.EventTakenOver))
		require.Equal(t, 1, seen.count(lock.EventClaimed))
	})
}
