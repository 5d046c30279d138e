package rowstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// An error without effect is not applied, and any other is unknown. An operator gets a cure once.
func TestErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for name, tt := range map[string]struct {
		answer rowstore.Answer
		err    error
		says   string
		is     []error
	}{
		"unknown":            {rowstore.Answer{Class: "c"}, cause, "shop: cause", nil},
		"unknown with cure":  {rowstore.Answer{Means: lock.ErrDenied, Cure: "cure"}, cause, "shop: cause", nil},
		"refused":            {rowstore.Answer{Refused: true, Class: "c"}, cause, "lock: not applied: shop: cause", []error{lock.ErrNotApplied}},
		"refused, with cure": {rowstore.Answer{Refused: true, Means: lock.ErrFull, Cure: "cure"}, cause, "lock: not applied: shop: " + lock.ErrFull.Error() + ": cure: cause", []error{lock.ErrNotApplied, lock.ErrDenied, lock.ErrFull}},
		"cure alone":         {rowstore.Answer{Refused: true, Cure: "cure"}, cause, "lock: not applied: shop: cure: cause", []error{lock.ErrNotApplied}},
		"explained before": {
			rowstore.Answer{Refused: true, Means: lock.ErrFull, Cure: "cure"},
			fmt.Errorf("%w: x: %w", lock.ErrDenied, cause),
			"lock: not applied: shop: " + lock.ErrDenied.Error() + ": x: cause",
			[]error{lock.ErrNotApplied, lock.ErrDenied},
		},
		"converted before": {rowstore.Answer{}, fmt.Errorf("%w: %w", lock.ErrNotApplied, cause), "lock: not applied: cause", []error{lock.ErrNotApplied}},
	} {
		failure := rowstore.Errors{Store: "shop", Answer: func(error) rowstore.Answer { return tt.answer }}
		err := failure.Of(tt.err)
		require.EqualError(t, err, tt.says, name)
		require.ErrorIs(t, err, cause, name)
		for _, sentinel := range []error{lock.ErrNotApplied, lock.ErrDenied, lock.ErrFull} {
			require.Equal(t, slices.Contains(tt.is, sentinel), errors.Is(err, sentinel), "%s: %v", name, sentinel)
		}
		if tt.answer.Class != "" {
			require.Equal(t, tt.answer.Class, lock.Class(err), name)
		}
		require.NoError(t, failure.Of(nil))
	}
}
