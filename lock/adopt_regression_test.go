package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// no-self-conflict: what was to go on with a lost takeover got no answer either, but was
// applied, and so prolonged the entry. Its token was forgotten all the same when the
// claim alone could by then have left nothing.
func TestRegressionLostAdoptionIsRemembered(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f1 effect
		s.lag = 0
		opts := []lock.Option{lock.WithKeep(10 * time.Second), lock.WithRerunAbandoned()}
		crash(t, s, func(context.Context) {}, opts...)
		time.Sleep(lease)
		l := open(opts...)
		s.next(claim, nil, hangReply, hangReply)
		_, _, err := l.Once(t.Context(), key, print1, f1.run("a"))
		require.ErrorIs(t, err, lock.ErrUnknown)
		for range 12 {
			time.Sleep(2 * time.Second)
			s.next(renew, hangReply, hangReply)
			s.every(hangRequest, claim)
			_, err := l.Acquire(t.Context(), "another") // so that old ones are forgotten
			require.Error(t, err)
			s.every(nil, claim)
			_, _, err = l.Once(t.Context(), key, print1, f1.run("b"))
			require.ErrorIs(t, err, lock.ErrUnknown)
		}
		s.mu.Lock()
		s.faults[renew] = nil
		s.mu.Unlock()
		_, _, err = l.Once(t.Context(), key, print1, f1.run("b"))
		require.NoError(t, err, "no-self-conflict")
		s.forget(t, record)
	})
}
