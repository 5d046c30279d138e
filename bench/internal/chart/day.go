// Package chart draws what was measured.
package chart

import (
	"cmp"
	"fmt"
	"image/color"
	"os"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/httplatch/httplatch/bench/internal/day"
	"github.com/httplatch/httplatch/bench/internal/peer"
)

// bar is the day of one library, with the time to live of its locks.
type bar struct {
	contender, label string
	ttl              time.Duration
}

// Libraries that renew have the default of this one. A lock that is not renewed has to cover the
// slowest order: five minutes, or the incident's two hours.
var (
	usual = []bar{
		{peer.Ours + ", Lock", "httplatch, 30 s", 30 * time.Second},
		{"redis/rueidislock", "rueidislock, 30 s", 30 * time.Second},
		{"go-redsync/redsync", "redsync, 5 min", 5 * time.Minute},
		{"SET NX + EVALSHA", "SET NX, 5 min", 5 * time.Minute},
		{"bsm/redislock", "redislock, 5 min", 5 * time.Minute},
		{"the incident's policy", "the incident's SETNX, 2 h", 2 * time.Hour},
	}
	short = []bar{
		{peer.Ours + ", Lock", "httplatch", time.Second},
		{"redis/rueidislock", "rueidislock", time.Second},
		{"SET NX + EVALSHA", "SET NX", time.Second},
		{"bsm/redislock", "redislock", time.Second},
		{"go-redsync/redsync", "redsync", time.Second},
	}
)

// Size of the picture. Its letters can be read at half of its width, 480 pixels.
const (
	width, height = 480 * vg.Inch / 72, 330 * vg.Inch / 72
	dpi           = 144
	letters       = 11
)

// Day writes a picture of days as PNG. Bars are the minutes for which customers were locked out,
// by library at its usual time to live, and below them the orders placed twice at a second.
func Day(all []day.Record, file string) error {
	minutes, err := bars(all, usual, "Minutes for which customers were locked out", func(r day.Record) float64 { return r.Minutes })
	if err != nil {
		return err
	}
	doubled, err := bars(all, short, "Orders placed twice, with a time to live of 1 s", func(r day.Record) float64 { return float64(r.Doubled) })
	if err != nil {
		return err
	}
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))}
	whole := draw.Crop(draw.New(canvas), 6, -6, 6, -6)
	cut := whole.Max.Y * 0.45
	minutes.Draw(draw.Crop(whole, 0, 0, cut, 0))
	doubled.Draw(draw.Crop(whole, 0, 0, 0, cut-whole.Max.Y-4))
	f, err := os.Create(file) //nolint:gosec // the developer's choice
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(f)
	return cmp.Or(err, f.Close())
}

// bars draws one figure of each library's day as a bar, with the figure at its end.
func bars(all []day.Record, of []bar, title string, figure func(day.Record) float64) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.Title.Padding = title, vg.Points(4)
	p.Title.TextStyle.Font.Size, p.Title.TextStyle.Font.Variant = 13, "Sans"
	var values plotter.Values
	labels, names := plotter.XYLabels{}, []string(nil)
	for i, b := range slices.Backward(of) { // the first one is on top
		at := slices.IndexFunc(all, func(r day.Record) bool { return r.Name == b.contender && r.TTL == b.ttl })
		if at < 0 {
			return nil, fmt.Errorf("chart: no day of %s with %s", b.contender, b.ttl)
		}
		value := figure(all[at])
		labels.XYs = append(labels.XYs, plotter.XY{X: value, Y: float64(len(of) - 1 - i)})
		labels.Labels = append(labels.Labels, " "+number(value))
		values, names = append(values, value), append(names, b.label)
	}
	chart, err := plotter.NewBarChart(values, 13)
	if err != nil {
		return nil, err
	}
	chart.Horizontal, chart.LineStyle.Width = true, 0
	chart.Color = color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff}
	figures, err := plotter.NewLabels(labels)
	if err != nil {
		return nil, err
	}
	for i := range figures.TextStyle {
		style := &figures.TextStyle[i]
		style.Font.Size, style.Font.Variant, style.YAlign = letters, "Sans", text.YCenter
	}
	figures.Offset.Y = letters / 6
	p.Add(chart, figures)
	p.NominalY(names...)
	style := &p.Y.Tick.Label
	style.Font.Size, style.Font.Variant, style.YAlign = letters, "Sans", text.YCenter
	p.HideX()
	p.X.Min, p.X.Max = 0, slices.Max(values)*1.15 // room for the last figure
	return p, nil
}

// number formats a figure for a reader: 58,505, 102, 0.1 and 0.
func number(f float64) string {
	switch {
	case f >= 1000:
		return fmt.Sprintf("%d,%03d", int(f+0.5)/1000, int(f+0.5)%1000)
	case f >= 1 || f == 0:
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.1f", f)
}
