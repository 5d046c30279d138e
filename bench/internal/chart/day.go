// Package chart draws what was measured.
package chart

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/httplatch/httplatch/bench/internal/day"
	"github.com/httplatch/httplatch/bench/internal/peer"
)

// Day writes a picture of days as PNG: minutes locked out over orders placed twice, of a
// million orders each, a curve for each library over the time to live of its locks. This
// library's guards are one point if they differ by nothing that can be seen.
func Day(all []day.Record, file string) error {
	p := plot.New()
	p.Title.Text = "A day of a million orders, " + rates(all) + " times the incident's losses"
	p.Title.Padding, p.Title.TextStyle.Font.Size = vg.Points(8), font.Points(14)
	p.X.Label.Text, p.Y.Label.Text = "orders placed twice", "minutes for which customers were locked out"
	p.X.Scale, p.Y.Scale = fromZero{}, fromZero{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(fromZeroTicks), plot.TickerFunc(fromZeroTicks)
	p.Legend.Top, p.Legend.Left = true, false
	p.Add(plotter.NewGrid())
	for i, name := range names(all) {
		days := slices.DeleteFunc(slices.Clone(all), func(r day.Record) bool { return r.Name != name })
		slices.SortFunc(days, func(a, b day.Record) int { return cmp.Compare(a.TTL, b.TTL) })
		labels := plotter.XYLabels{}
		for _, r := range days {
			million := float64(r.Orders) / 1e6
			labels.XYs = append(labels.XYs, plotter.XY{X: float64(r.Doubled) / million, Y: r.Minutes / million})
			labels.Labels = append(labels.Labels, " "+day.Short(r.TTL))
		}
		line, dots, err := plotter.NewLinePoints(labels.XYs)
		if err != nil {
			return err
		}
		line.Color, dots.Color = plotutil.Color(i), plotutil.Color(i)
		line.Width, dots.Shape, dots.Radius = vg.Points(1.5), plotutil.Shape(i), vg.Points(4)
		p.Add(line, dots)
		p.Legend.Add(name, line, dots)
		if strings.HasPrefix(name, peer.Ours) {
			continue
		}
		texts, err := plotter.NewLabels(labels)
		if err != nil {
			return err
		}
		p.Add(texts)
	}
	p.X.Min, p.Y.Min = 0, 0
	p.X.Max, p.Y.Max = 3*p.X.Max, 30*p.Y.Max // room for labels, and for the legend
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(20*vg.Centimeter, 12*vg.Centimeter), vgimg.UseDPI(120))}
	p.Draw(draw.New(canvas))
	f, err := os.Create(file) //nolint:gosec // the developer's choice
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(f)
	return cmp.Or(err, f.Close())
}

func names(all []day.Record) (names []string) {
	for _, r := range all {
		if !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
	}
	return names
}

func rates(all []day.Record) string {
	var rates []string
	for _, r := range all {
		if text := fmt.Sprint(r.Rate); !slices.Contains(rates, text) {
			rates = append(rates, text)
		}
	}
	return strings.Join(rates, " and ")
}

// fromZero is a scale of powers of ten that begins with 0.
type fromZero struct{}

// Normalize is part of [plot.Normalizer].
func (fromZero) Normalize(low, high, x float64) float64 {
	return (math.Log1p(x) - math.Log1p(low)) / (math.Log1p(high) - math.Log1p(low))
}

func fromZeroTicks(_, high float64) []plot.Tick {
	ticks := []plot.Tick{{Value: 0, Label: "0"}}
	for power := 1.0; power <= high; power *= 10 {
		ticks = append(ticks, plot.Tick{Value: power, Label: fmt.Sprintf("%.0f", power)})
	}
	return ticks
}
