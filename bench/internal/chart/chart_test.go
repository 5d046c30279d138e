package chart_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/chart"
	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/bench/internal/suite"
)

func TestDrawsWhatWasMeasured(t *testing.T) {
	s := &stats.Samples{}
	for round := range 3 {
		for _, callers := range []int{1, 8, 64} {
			for who, factor := range map[string]int{"a": 1, "b": 3} {
				s.Add(stats.Name{Part: suite.Cycles, Case: suite.CallersCase(callers), Who: who, Metric: suite.Rate}, float64(1000*callers*factor+round))
			}
		}
		s.Add(stats.Name{Part: suite.HTTP, Case: suite.ClosedLoop, Who: "a", Metric: suite.Rate}, 1000)
	}
	directory := t.TempDir()
	files, err := chart.Draw(s, directory)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(directory, "cycles.svg"), filepath.Join(directory, "http.svg")}, files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.Contains(t, string(text), "<svg")
	}
}

func TestCasesWithoutANumberAreAnError(t *testing.T) {
	s := &stats.Samples{}
	s.Add(stats.Name{Part: suite.Cycles, Case: "many callers", Who: "a", Metric: suite.Rate}, 1)
	_, err := chart.Draw(s, t.TempDir())
	require.ErrorContains(t, err, `cycles.svg: case "many callers"`)
}

func TestDrawsOverloadBesideAnEarlierVersion(t *testing.T) {
	s := &stats.Samples{}
	for _, who := range []string{"Open", suite.Before("Open")} {
		for _, multiple := range suite.Offered {
			s.Add(stats.Name{Part: suite.Overload, Case: suite.OpenCase(multiple), Who: who, Metric: suite.Goodput}, 0.9)
		}
		for _, second := range []string{"1 s", "2 s"} {
			s.Add(stats.Name{Part: suite.OverTime(suite.ClosedCase(600)), Case: second, Who: who, Metric: suite.Rate}, 700)
		}
	}
	directory := t.TempDir()
	files, err := chart.Draw(s, directory)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(directory, "overload.svg"), filepath.Join(directory, "overload-time-600.svg")}, files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.Contains(t, string(text), "Open, before")
	}
}
