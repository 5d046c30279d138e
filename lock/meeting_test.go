package lock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// That a store has not served a caller within a short budget says nothing to one
// that has a longer.
func TestAShortBudgetEndsNoLongerOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		hasty := l.With(lock.WithBudget(budget / 100))
		s.every(func(ctx context.Context, apply func() error) error {
			if sleep(ctx, budget/10); ctx.Err() != nil {
				return ctx.Err()
			}
			return apply()
		}, claim)
		hurried := make(chan error, 1)
		go func() { _, err := hasty.Acquire(context.Background(), key); hurried <- err }()
		synctest.Wait()
		e, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		require.ErrorIs(t, <-hurried, lock.ErrUnavailable)
		require.NoError(t, e.Release(t.Context()))
	})
}

// What a refusal shows is its caller's, who may write to it.
func TestARefusalThatIsSharedIsEachCallersOwn(t *testing.T) {
	t.Parallel()
	s := newScripted()
	l := lock.New(s, lock.WithLogger(quiet))
	_, _, err := l.Once(t.Context(), key, print1, func(context.Context) ([]byte, error) { return []byte("answer"), nil })
	require.NoError(t, err)
	s.every(slow(answersIn), claim)
	for _, err := range meet(meeting, func(int) error {
		_, _, err := l.Once(context.Background(), key, print2, nil)
		if refused, ok := err.(*lock.RefusedError); ok { //nolint:errorlint // it is to be one
			copy(refused.Entry.Fingerprint, print2)
			copy(refused.Entry.Receipt, "another")
		}
		return err
	}) {
		require.ErrorIs(t, err, lock.ErrMismatch)
	}
	require.NoError(t, l.Close(t.Context()))
}
