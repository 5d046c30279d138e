package load_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/internal/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPercentile(t *testing.T) {
	thousand := make([]time.Duration, 1000)
	for i := range thousand {
		thousand[i] = time.Duration(1000 - i)
	}
	for _, tt := range []struct {
		of   []time.Duration
		p    float64
		want time.Duration
	}{
		{thousand, 0, 1},
		{thousand, 50, 500},
		{thousand, 99, 990},
		{thousand, 99.9, 999},
		{thousand, 100, 1000},
		{[]time.Duration{7}, 99.9, 7},
		{[]time.Duration{2, 1}, 50, 1},
		{[]time.Duration{2, 1}, 51, 2},
	} {
		require.Equal(t, tt.want, load.Result{Took: tt.of}.Percentile(tt.p), "%v of %d", tt.p, len(tt.of))
	}
}

func TestClosedCountsWhatIsDoneInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := must.Get(load.Closed(t.Context(), 4, time.Second, func(context.Context, int, int) error {
			time.Sleep(300 * time.Millisecond)
			return nil
		}))(t)
		require.Equal(t, 4*3, r.Done, "the fourth of each caller ends after a second")
		require.Len(t, r.Took, 4*4)
		require.InDelta(t, 12, r.Rate(), 0)
		for _, d := range r.Took {
			require.Equal(t, 300*time.Millisecond, d)
		}
	})
}

// failing fails once in so many times.
func failing(every int, err error) load.Op {
	var calls atomic.Int64
	return func(context.Context, int, int) error {
		time.Sleep(time.Millisecond)
		if calls.Add(1)%int64(every) == 0 {
			return err
		}
		return nil
	}
}

func TestFailuresAreCountedApart(t *testing.T) {
	broken := errors.New("broken")
	for name, run := range map[string]func(t *testing.T, op load.Op) (load.Result, error){
		"closed": func(t *testing.T, op load.Op) (load.Result, error) {
			t.Helper()
			return load.Closed(t.Context(), 4, time.Second, op)
		},
		"open": func(t *testing.T, op load.Op) (load.Result, error) {
			t.Helper()
			return load.Open(t.Context(), 4, load.Arrivals(4000, time.Second, 1), op)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := must.Get(run(t, failing(100, broken)))(t)
				require.InDelta(t, 40, r.Failed, 5)
				require.InDelta(t, 3960, r.Done, 300)
				require.Len(t, r.Took, r.Done)
				_, err := run(t, failing(10, broken))
				require.ErrorIs(t, err, broken, "with one failure in ten there is no figure")
			})
		})
	}
}

func TestArrivals(t *testing.T) {
	due := load.Arrivals(1000, 10*time.Second, 7)
	require.InDelta(t, 10_000, len(due), 500)
	require.True(t, slices.IsSorted(due))
	require.Less(t, due[len(due)-1], 10*time.Second)
	require.Equal(t, due, load.Arrivals(1000, 10*time.Second, 7))
	require.NotEqual(t, due, load.Arrivals(1000, 10*time.Second, 8))
}

func everyMillisecond(n int) []time.Duration {
	due := make([]time.Duration, n)
	for i := range due {
		due[i] = time.Duration(i) * time.Millisecond
	}
	return due
}

// A server with one connection that stalls once, for 100 ms: the requests that
// were due meanwhile waited too, the first 99 ms, the next 98 ms.
func TestOpenMeasuresFromWhenRequestsWereDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := must.Get(load.Open(t.Context(), 1, everyMillisecond(1000), stallsOnce(100*time.Millisecond)))(t)
		require.Equal(t, 1000, r.Done)
		require.Equal(t, 100, waited(r.Took), "the stalled one, and 99 that were due behind it")
	})
}

func stallsOnce(d time.Duration) load.Op {
	return func(_ context.Context, _, n int) error {
		if n == 500 {
			time.Sleep(d)
		}
		return nil
	}
}

func waited(took []time.Duration) int {
	n := 0
	for _, d := range took {
		if d > 0 {
			n++
		}
	}
	return n
}

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
		r := must.Get(load.Steady(t.Context(), 4, time.Second, time.Second, failing(2, errors.New("refused")), func() {}))(t)
		require.InDelta(t, 50, r.NotServed(), 1)
		require.InDelta(t, 2000, r.Done, 20)
	})
}
