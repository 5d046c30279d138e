package send_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// A send that was answered, and split, is followed by another without a token.
func TestSplitIsNotPaidFromTheRetryBudget(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err   error
		sends int
	}{
		"split, nothing left":    {fmt.Errorf("%w: %w", errNotApplied, send.ErrSplit), 3},
		"split, something left":  {send.ErrSplit, 3},
		"not applied, no answer": {errNotApplied, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, sends := newSender(), 0
				for s.Retries.Take() {
				}
				err := send.Do(t.Context(), s, new(send.Call), send.Terms{Budget: budget}, request(func(context.Context) error {
					if sends++; sends < 3 {
						return tt.err
					}
					return nil
				}))
				require.Equal(t, tt.sends, sends)
				require.Equal(t, tt.sends < 3, err != nil)
			})
		})
	}
}

// A send that certainly left nothing makes no doubt: not even its end is recorded.
func TestNothingIsNoDoubt(t *testing.T) {
	t.Parallel()
	var f *send.Flight
	require.NoError(t, send.Do(t.Context(), newSender(), new(send.Call), send.Terms{Budget: budget}, request(func(ctx context.Context) error {
		f = send.InFlight(ctx)
		f.Depart()
		return nil
	})))
	f.Arrive(send.Nothing)
	require.Equal(t, send.Doubt{}, f.Doubt())
}
