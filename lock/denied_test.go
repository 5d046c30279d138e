package lock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
)

// A store that denies the end of a lease is not asked again by the caller, and is
// by the background: at the usual pace, since an operator may lift the denial.
func TestDeniedEndIsCompletedInTheBackground(t *testing.T) {
	for name, tt := range map[string]struct {
		op   fault.Op
		end  func(t *testing.T, e *lock.Lease) error
		left lock.State
	}{
		"release": {fault.Release, func(t *testing.T, e *lock.Lease) error { t.Helper(); return e.Release(t.Context()) }, lock.Free},
		"settle": {fault.Settle, func(t *testing.T, e *lock.Lease) error {
			t.Helper()
			return e.Settle(t.Context(), []byte("receipt"), time.Hour)
		}, lock.Settled},
	} {
		bubbleOverCase(t, name, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			e := acquired(t, open(lock.WithLease(time.Minute)), key)
			require.NoError(t, e.Extend(t.Context()), "for the whole lease")
			s.Every(denied, tt.op)
			began := time.Now()
			require.ErrorIs(t, tt.end(t, e), lock.ErrDenied)
			require.Zero(t, time.Since(began))
			time.Sleep(10 * time.Second)
			require.Less(t, s.Count(tt.op), 20, "no more often than once a second after the first second")
			require.Greater(t, s.Count(tt.op), 5)
			require.Equal(t, lock.Held, s.State(t, key).State)
			s.Every(nil, tt.op)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, tt.left, s.State(t, key).State)
		})
	}
}

// A denied renewal is repeated within the lease, at the same pace as any failed
// renewal.
func TestDeniedRenewalComesAgain(t *testing.T) {
	bubbleOver(t, direct, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		e := acquired(t, open(lock.WithLease(30*time.Second)), key)
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, s.Count(fault.Renew), "for the whole lease")
		s.Every(denied, fault.Renew)
		time.Sleep(20 * time.Second)
		require.InDelta(t, 10, s.Count(fault.Renew), 2, "once a second from a third of the lease on")
		s.Every(nil, fault.Renew)
		time.Sleep(15 * time.Second)
		require.NoError(t, e.Context().Err(), "37 s after a grant, and 35 after a renewal for 30")
		require.NoError(t, e.Release(t.Context()))
	})
}
