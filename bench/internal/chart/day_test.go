package chart_test

import (
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/chart"
	"github.com/httplatch/httplatch/bench/internal/day"
	"github.com/httplatch/httplatch/internal/testkit/must"
)

// TestDrawsDays: the picture of the days that are kept has nothing at its edges, where a label
// would be cut off.
func TestDrawsDays(t *testing.T) {
	days := must.Get(day.Load("../../day.json"))(t)
	days = slices.DeleteFunc(days, func(r day.Record) bool { return r.Rate <= 1 })
	file := filepath.Join(t.TempDir(), "day.png")
	require.NoError(t, chart.Day(days, file))
	f := must.Get(os.Open(file))(t)
	picture := must.Get(png.Decode(f))(t)
	require.NoError(t, f.Close())
	require.Equal(t, 960, picture.Bounds().Dx())
	edge := 0
	for x := range picture.Bounds().Dx() {
		for y := range picture.Bounds().Dy() {
			if !image.Pt(x, y).In(picture.Bounds().Inset(8)) && color.GrayModel.Convert(picture.At(x, y)) != (color.Gray{Y: 255}) {
				edge++
			}
		}
	}
	require.Zero(t, edge, "pixels at the edges")

	require.ErrorContains(t, chart.Day(days[:1], file), "no day of")
}
