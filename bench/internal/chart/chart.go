// Package chart draws what was measured, as SVG.
package chart

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/bench/internal/suite"
)

const width, height = 20 * vg.Centimeter, 12 * vg.Centimeter

// chart is one picture.
type chart struct {
	file string
	make func(s *stats.Samples) (*plot.Plot, error)
}

func charts() []chart {
	return append([]chart{
		{"cycles.svg", func(s *stats.Samples) (*plot.Plot, error) {
			return lines(s, suite.Cycles, suite.Rate, "Lock cycles on one Redis", "callers")
		}},
		{"cpu.svg", func(s *stats.Samples) (*plot.Plot, error) {
			return lines(s, suite.Cycles, suite.CPU, "What a lock cycle costs the Redis server", "callers")
		}},
		{"tail.svg", func(s *stats.Samples) (*plot.Plot, error) {
			return lines(s, suite.Cycles, suite.P99, "The slowest one in a hundred lock cycles", "callers")
		}},
		{"growth.svg", func(s *stats.Samples) (*plot.Plot, error) {
			return lines(s, suite.Growth, suite.Rate, "Lock cycles beside so many live keys", "live keys")
		}},
		{"http.svg", func(s *stats.Samples) (*plot.Plot, error) {
			return bars(s, suite.HTTP, suite.ClosedLoop, suite.Rate, "POST /orders, "+suite.ClosedLoop)
		}},
		{"contended.svg", func(s *stats.Samples) (*plot.Plot, error) {
			return bars(s, suite.Contended, suite.FourProcesses, suite.Rate, "Duplicates refused, "+suite.FourProcesses)
		}},
	}, append(overloadCharts(), killedChart())...)
}

// Draw writes a picture into directory for everything that was measured, and
// returns their files.
func Draw(s *stats.Samples, directory string) ([]string, error) {
	var files []string
	for _, c := range charts() {
		p, err := c.make(s)
		if err != nil {
			return files, fmt.Errorf("%s: %w", c.file, err)
		}
		if p == nil {
			continue // nothing was measured
		}
		file := filepath.Join(directory, c.file)
		if err := save(p, file); err != nil {
			return files, err
		}
		files = append(files, file)
	}
	return files, nil
}

// save embeds the fonts: with others than those that it was laid out for, labels
// are cut off.
func save(p *plot.Plot, file string) error {
	canvas := vgsvg.NewWith(vgsvg.UseWH(width, height), vgsvg.EmbedFonts(true))
	p.Draw(draw.New(canvas))
	var text bytes.Buffer
	if _, err := canvas.WriteTo(&text); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o600)
}

func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(8)
	p.Title.TextStyle.Font.Size = font.Points(14)
	return p
}

// lines has a line for every contender over the number that its cases begin
// with, both axes by powers of ten, with the least and the most of all rounds.
func lines(s *stats.Samples, part, metric, title, x string) (*plot.Plot, error) {
	p := newPlot(title)
	p.X.Label.Text, p.Y.Label.Text = x, metric
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(powers), plot.TickerFunc(powers)
	some, err := addLines(p, s, part, metric)
	if err != nil || !some {
		return nil, err
	}
	p.X.Max *= 1.5 // room for its label
	p.Y.Max *= 4   // and for the legend
	return p, nil
}

// addLines adds those of every contender, and a legend, if there are any.
func addLines(p *plot.Plot, s *stats.Samples, part, metric string) (some bool, err error) {
	p.Legend.Top = true
	p.Legend.Left = true
	p.Add(plotter.NewGrid())
	for i, who := range s.Whos(part, metric) {
		points, err := pointsOf(s, part, metric, who)
		if err != nil {
			return false, err
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return false, err
		}
		spread, err := plotter.NewYErrorBars(points)
		if err != nil {
			return false, err
		}
		line.Color, dots.Color, spread.Color = plotutil.Color(i), plotutil.Color(i), plotutil.Color(i)
		line.Width, dots.Shape = vg.Points(1.5), plotutil.Shape(i)
		p.Add(line, dots, spread)
		p.Legend.Add(who, line, dots)
		some = true
	}
	return some, nil
}

// powers of ten, in full.
func powers(low, high float64) []plot.Tick {
	ticks := plot.LogTicks{Prec: -1}.Ticks(low, high)
	for i, t := range ticks {
		if t.Label != "" {
			ticks[i].Label = fmt.Sprintf("%.0f", t.Value)
		}
	}
	return ticks
}

// points are medians with their spread.
type points struct {
	plotter.XYs
	plotter.YErrors
}

func pointsOf(s *stats.Samples, part, metric, who string) (points, error) {
	var found points
	for _, kase := range s.Cases(part, metric) {
		values := s.Of(stats.Name{Part: part, Case: kase, Who: who, Metric: metric})
		if len(values) == 0 {
			continue
		}
		var x float64
		if _, err := fmt.Sscan(kase, &x); err != nil {
			return points{}, fmt.Errorf("case %q: %w", kase, err)
		}
		y := stats.Over(values)
		found.XYs = append(found.XYs, plotter.XY{X: x, Y: y.Median})
		found.YErrors = append(found.YErrors, struct{ Low, High float64 }{y.Median - y.Min, y.Max - y.Median})
	}
	return found, nil
}

// bars has a bar for every contender in one case.
func bars(s *stats.Samples, part, kase, metric, title string) (*plot.Plot, error) {
	p := newPlot(title)
	p.X.Label.Text = metric
	var names []string
	var values plotter.Values
	for _, who := range s.Whos(part, metric) {
		if rounds := s.Of(stats.Name{Part: part, Case: kase, Who: who, Metric: metric}); len(rounds) > 0 {
			// The first is to be the uppermost.
			names, values = append([]string{who}, names...), append(plotter.Values{stats.Median(rounds)}, values...)
		}
	}
	if len(names) == 0 {
		return nil, nil //nolint:nilnil // nothing to draw
	}
	chart, err := plotter.NewBarChart(values, vg.Points(14))
	if err != nil {
		return nil, err
	}
	chart.Horizontal = true
	chart.Color = plotutil.Color(0)
	p.Add(plotter.NewGrid(), chart)
	p.NominalY(names...)
	p.X.Min = 0
	return p, nil
}
