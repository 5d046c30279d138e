package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

type namedError struct{ error }

func (namedError) Class() string { return "OOM" }

func TestClassNamesTheCause(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"":          nil,
		"OOM":       fmt.Errorf("%w: %w", lock.ErrUnavailable, namedError{context.DeadlineExceeded}),
		"full":      fmt.Errorf("%w: %w", lock.ErrNotApplied, lock.ErrFull),
		"silent":    fmt.Errorf("%w: %w", lock.ErrUnknown, context.DeadlineExceeded),
		"cancelled": fmt.Errorf("%w: %w", lock.ErrUnknown, context.Canceled),
		"closed":    lock.ErrClosed,
		"_OTHER":    errors.New("something else"),
	} {
		require.Equal(t, want, lock.Class(err), err)
	}
}

// A deadline that leaves a store no time to answer does not show a fault of the store. A longer
// deadline that ends without an answer shows that the store is silent.
func TestClassOfASilentStoreUnderCallersDeadline(t *testing.T) {
	for name, tt := range map[string]struct {
		deadline time.Duration
		want     string
	}{
		"has left hardly any time": {budget / 50, "cancelled"},
		"is used up":               {budget / 2, "silent"},
		"is later than the budget": {2 * budget, "silent"},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			s.Every(fault.HangRequest, fault.Claim)
			ctx := within(t, tt.deadline)
			err := open().Do(ctx, key, nothing)
			require.ErrorIs(t, err, lock.ErrUnknown)
			require.Equal(t, tt.want, lock.Class(err), err)
			if tt.deadline < budget {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		})
	}
}
