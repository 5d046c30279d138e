package stats_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/stats"
)

func TestPercentile(t *testing.T) {
	thousand := make([]time.Duration, 1000)
	for i := range thousand {
		thousand[i] = time.Duration(i + 1)
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
		{[]time.Duration{7}, 50, 7},
		{[]time.Duration{7}, 99.9, 7},
		{[]time.Duration{1, 2}, 50, 1},
		{[]time.Duration{1, 2}, 51, 2},
	} {
		require.Equal(t, tt.want, stats.Percentile(tt.of, tt.p), "%v of %d", tt.p, len(tt.of))
	}
	require.Panics(t, func() { stats.Percentile(nil, 50) })
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		of   []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		require.InDelta(t, tt.want, stats.Median(tt.of), 0)
	}
	require.True(t, math.IsNaN(stats.Median(nil)))
	unsorted := []float64{3, 1, 2}
	stats.Median(unsorted)
	require.Equal(t, []float64{3, 1, 2}, unsorted, "rounds keep their order")
}

// A machine that is busy in one round slows both of a pair. Their ratio does
// not change; that of their medians would.
func TestRatioIsOfPairs(t *testing.T) {
	a, b := []float64{200, 20, 400}, []float64{100, 10, 200}
	require.Equal(t, stats.Spread{Median: 2, Min: 2, Max: 2}, stats.Ratio(a, b))

	a, b = []float64{100, 300, 600}, []float64{100, 200, 200}
	require.Equal(t, stats.Spread{Median: 1.5, Min: 1, Max: 3}, stats.Ratio(a, b))
	require.Equal(t, stats.Spread{Median: 1, Min: 1, Max: 1}, stats.Ratio(a[:1], b))
	require.True(t, math.IsNaN(stats.Ratio(nil, b).Median))
}

func TestSamples(t *testing.T) {
	var s stats.Samples
	name := func(c, who string) stats.Name {
		return stats.Name{Part: "cycles", Case: c, Who: who, Metric: "per second"}
	}
	for round := range 2 {
		s.Add(name("1", "b"), float64(round))
		s.Add(name("1", "a"), float64(10+round))
		s.Add(name("8", "b"), float64(20+round))
	}
	s.Add(stats.Name{Part: "growth", Case: "x", Who: "c", Metric: "per second"}, 1)

	text, err := json.Marshal(&s)
	require.NoError(t, err)
	var back stats.Samples
	require.NoError(t, json.Unmarshal(text, &back))
	for _, s := range []*stats.Samples{&s, &back} {
		require.Equal(t, []float64{10, 11}, s.Of(name("1", "a")))
		require.Nil(t, s.Of(name("64", "a")))
		require.Equal(t, []string{"1", "8"}, s.Cases("cycles", "per second"))
		require.Equal(t, []string{"b", "a"}, s.Whos("cycles", "per second"))
		require.Empty(t, s.Whos("cycles", "p99"))
	}
	s.Arrange(func(a, b stats.Name) int { return strings.Compare(a.Who, b.Who) })
	require.Equal(t, []string{"a", "b"}, s.Whos("cycles", "per second"))
	require.Equal(t, []string{"1", "8"}, s.Cases("cycles", "per second"))
}
