package load_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
)

// A server that does a hundred a second, one at a time: 200 callers need two
// seconds for their first.
func oneAtATime() load.Op {
	turn := make(chan struct{}, 1)
	return func(context.Context, int, int) error {
		turn <- struct{}{}
		time.Sleep(10 * time.Millisecond)
		<-turn
		return nil
	}
}

func TestSteadyCountsWhatEndsAfterTheWarmUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, marks := time.Now(), []time.Duration{}
		r, err := load.Steady(t.Context(), 200, 2*time.Second, 4*time.Second, oneAtATime(), func() { marks = append(marks, time.Since(began)) })
		require.NoError(t, err)
		require.InDelta(t, 100, r.Rate(), 1)
		require.Zero(t, r.Failed)
		require.Equal(t, []time.Duration{2 * time.Second, 6 * time.Second}, marks)
	})
}

func TestSteadyTakesFailuresForFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := load.Steady(t.Context(), 4, time.Second, time.Second, failing(2, errors.New("refused")), func() {})
		require.NoError(t, err)
		require.InDelta(t, 50, r.NotServed(), 1)
		require.InDelta(t, 2000, r.Done, 20)
	})
}
