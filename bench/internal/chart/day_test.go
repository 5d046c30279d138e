package chart_test

import (
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/chart"
	"github.com/httplatch/httplatch/bench/internal/day"
)

func TestDrawsDays(t *testing.T) {
	days := []day.Record{
		{Name: "a", TTL: time.Second, Rate: 1000, Outcome: day.Outcome{Orders: 1000, Doubled: 3}},
		{Name: "a", TTL: 2 * time.Hour, Rate: 1000, Outcome: day.Outcome{Orders: 1000, Minutes: 500}},
		{Name: "b", TTL: time.Minute, Rate: 1000, Outcome: day.Outcome{Orders: 1000}},
	}
	file := filepath.Join(t.TempDir(), "day.png")
	require.NoError(t, chart.Day(days, file))
	f, err := os.Open(file)
	require.NoError(t, err)
	picture, err := png.Decode(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Greater(t, picture.Bounds().Dx(), 500)
}
