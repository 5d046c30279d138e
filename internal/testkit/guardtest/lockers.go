package guardtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// NewLocker returns a Locker that is closed, in good order, when tb ends.
func NewLocker(tb testing.TB, store lock.Store, opts ...lock.Option) *lock.Locker {
	tb.Helper()
	l := lock.New(store, opts...)
	tb.Cleanup(func() { RequireCloses(tb, l) })
	return l
}

// RequireCloses closes l, and checks that no lease and no call to the store is left.
func RequireCloses(tb testing.TB, l *lock.Locker) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(tb, l.Close(ctx))
}

// End closes l, even if calls stay unfinished because a store never answers.
func End(l *lock.Locker) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Close(ctx)
}
