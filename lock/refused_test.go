package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// A duplicate in the holder's process is refused by the facts that this process
// has. In each case a key is refused, and something happens to it.
func TestARefusalIsNoLongerThanItsCause(t *testing.T) {
	cases := map[string]func(t *testing.T, l *lock.Locker, e *lock.Lease){
		"given to a waiter": func(t *testing.T, l *lock.Locker, e *lock.Lease) {
			next := make(chan *lock.Lease, 1)
			go func() {
				w, err := l.With(lock.WithWait(time.Minute)).Acquire(t.Context(), key)
				assert.NoError(t, err)
				next <- w
			}()
			synctest.Wait()
			refusedTwice(t, l)
			require.NoError(t, e.Release(t.Context()))
			second := <-next
			refusedTwice(t, l)
			require.NoError(t, second.Release(t.Context()))
			requireGrant(t, l)
		},
		"the caller has left": func(t *testing.T, l *lock.Locker, e *lock.Lease) {
			ctx, leave := context.WithCancelCause(t.Context())
			left := errors.New("left")
			leave(left)
			require.ErrorIs(t, l.Do(ctx, key, nil), left)
			require.NoError(t, e.Release(t.Context()))
		},
		"the Locker is closed": func(t *testing.T, l *lock.Locker, e *lock.Lease) {
			closed := make(chan error, 1)
			go func() { closed <- l.Close(t.Context()) }()
			synctest.Wait()
			require.ErrorIs(t, l.Do(t.Context(), key, nil), lock.ErrClosed)
			require.NoError(t, e.Release(t.Context()))
			require.NoError(t, <-closed)
		},
	}
	for name, happens := range cases {
		t.Run(name, virtual.Test(func(t *testing.T) {
			var v events
			l := lock.New(fault.New(), lock.WithLogger(quiet), lock.WithObserver(v.observe))
			e := acquired(t, l, key)
			refusedTwice(t, l)
			require.Equal(t, 2, v.count(lock.EventRefused))
			happens(t, l, e)
			require.NoError(t, l.Close(t.Context()))
		}))
	}
}

// refusedTwice is refused, each time with an error of the caller's own.
func refusedTwice(t *testing.T, l *lock.Locker) {
	t.Helper()
	var refused [2]*lock.RefusedError
	for i := range refused {
		_, err := l.Acquire(t.Context(), key)
		require.ErrorAs(t, err, &refused[i])
	}
	require.Equal(t, refused[0], refused[1])
	require.ErrorIs(t, refused[1], lock.ErrHeld)
	require.NotSame(t, refused[0], refused[1])
	require.NotContains(t, refused[1].Error(), key)
	require.NotEmpty(t, refused[1].Entry.Owner)
}

// A store that denies the end of a lease is not asked again by the caller, and is
// by the background: at the usual pace, since an operator may lift the denial.
func TestDeniedEndIsCompletedInTheBackground(t *testing.T) {
	for name, tt := range map[string]struct {
		op   fault.Op
		end  func(t *testing.T, e *lock.Lease) error
		left lock.State
	}{
		"release": {fault.Release, func(t *testing.T, e *lock.Lease) error { return e.Release(t.Context()) }, lock.Free},
		"settle": {fault.Settle, func(t *testing.T, e *lock.Lease) error {
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

// A denied renewal is repeated within the lease, at the same pace as any failed renewal.
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
