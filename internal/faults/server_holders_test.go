package faults_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// ledger is a resource that is written to under a lock: once with the fence of
// the lease, as it should be, and once without.
type ledger struct {
	newest  int64
	guarded []string
	open    []string
}

// write reports whether the guarded half has taken it.
func (l *ledger) write(t *testing.T, lease *lock.Lease, entry string) bool {
	t.Helper()
	fence, ok := lease.Fence()
	require.True(t, ok)
	l.open = append(l.open, entry)
	if fence < l.newest {
		return false
	}
	l.newest = fence
	l.guarded = append(l.guarded, entry)
	return true
}

// requireSecondHolder lets there take what here has lost at the server without knowing it
// yet, and checks what that leads to: two that believe in their leases, of
// which the fence stops the first, which is notified at the next reply of the server,
// and leaves its successor alone.
func requireSecondHolder(t *testing.T, first *lock.Lease, there *lock.Locker, key string) {
	t.Helper()
	var book ledger
	require.True(t, book.write(t, first, "first"))
	successor := acquired(t, there, key)
	require.NoError(t, first.Context().Err(), "the first holder believes in its lease as well")
	require.True(t, book.write(t, successor, "second"))
	require.False(t, book.write(t, first, "first, late"))
	require.Equal(t, []string{"first", "second"}, book.guarded)
	require.Equal(t, []string{"first", "second", "first, late"}, book.open, "without a fence the late write is accepted")

	require.ErrorIs(t, again(t, func() error { return first.Extend(t.Context()) }), lock.ErrLost)
	require.ErrorIs(t, context.Cause(first.Context()), lock.ErrLost)
	require.ErrorContains(t, context.Cause(first.Context()), "took or removed")
	require.ErrorIs(t, first.Release(t.Context()), lock.ErrLost)
	lives(t, successor)
}

// isNotified waits for the end of a lease whose entry is gone, and returns why it
// ended: by the answer to a renewal, or with its validity if there was none.
func isNotified(t *testing.T, lease *lock.Lease) string {
	t.Helper()
	until(t, func() bool { return lease.Context().Err() != nil })
	cause := context.Cause(lease.Context())
	require.ErrorIs(t, cause, lock.ErrLost)
	require.ErrorIs(t, lease.Release(t.Context()), lock.ErrLost)
	return cause.Error()
}
