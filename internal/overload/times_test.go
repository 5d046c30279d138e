package overload_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/overload"
)

func TestPercentilesAreExactToOnePercent(t *testing.T) {
	require.Equal(t, overload.Times{}, overload.Percentiles())
	var times []time.Duration
	for i := range 1000 {
		times = append(times, time.Duration(i+1)*37*time.Microsecond)
	}
	got := overload.Percentiles(times...)
	require.InEpsilon(t, float64(times[499]), float64(got.P50), 0.01)
	require.InEpsilon(t, float64(times[989]), float64(got.P99), 0.01)

	for _, d := range []time.Duration{-1, 0, 1, 127, 128, 255, 256, time.Second, 1<<63 - 1} {
		counted := overload.Counted(d)
		require.LessOrEqual(t, counted, max(d, 0))
		require.InDelta(t, float64(max(d, 0)), float64(counted), 0.01*float64(max(d, 0)))
	}
}
