package guardtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// NewLocker returns a Locker that is closed, in good order, when t ends.
func NewLocker(t *testing.T, store lock.Store, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(store, opts...)
	t.Cleanup(func() { RequireCloses(t, l) })
	return l
}

// RequireCloses checks that nothing is left of what l did.
func RequireCloses(t *testing.T, l *lock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, l.Close(ctx))
}

// End closes l, whatever is left unfinished by a store that never answers.
func End(l *lock.Locker) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Close(ctx)
}
