package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

// no-self-conflict: what was to go on with a lost takeover got no answer either, but was
// applied, and so prolonged the entry. Its token was forgotten all the same when the
// claim alone could by then have left nothing.
func TestRegressionLostAdoptionIsRemembered(t *testing.T) {
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
