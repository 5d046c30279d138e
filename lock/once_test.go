package lock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestOnceWhileTheFirstRuns(t *testing.T) {
	bubble(t, func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker) {
		here, there := open(), open()
		must.Run(t)(here.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			for _, l := range []*lock.Locker{here, there} {
				_, _, err := l.Once(ctx, key, print1, nil)
				require.ErrorIs(t, err, lock.ErrHeld)
				_, _, err = l.Once(ctx, key, print2, nil)
				require.ErrorIs(t, err, lock.ErrMismatch, "422 comes before 409")
				_, _, err = l.Once(ctx, key, nil, nil)
				require.ErrorIs(t, err, lock.ErrHeld)
			}
			require.Equal(t, 1, lock.Attempt(ctx))
			_, ok := lock.FromContext(ctx)
			require.False(t, ok, "the lease of a receipt protects no resource")
			return nil, nil
		}))
		require.Zero(t, lock.Attempt(t.Context()))
		require.Error(t, lock.Commit(t.Context()))
	})
}

// Goroutines of a group end each other with their errors. The refusal of another key, because of its receipt or
// of a run that failed, does not concern this key: Once must not mistake it for its own.
func TestErrorThatEndsTheContextIsNoReplay(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{
		"a receipt": &lock.RefusedError{Reason: lock.ErrSettled, Entry: lock.Entry{State: lock.Settled, Receipt: []byte("shipped")}},
		"a failure": &lock.FailedRunError{Err: errMine},
	} {
		ctx, end := context.WithCancelCause(t.Context())
		end(cause)
		receipt, replayed, err := fault.Locker(t, memstore.New()).Once(ctx, "order=8", nil, mustNotRun)
		require.ErrorContains(t, err, "not acquired", name)
		require.ErrorIs(t, err, cause, name)
		require.False(t, replayed, name)
		require.Empty(t, receipt, name)
	}
}
