package chart

import (
	"fmt"
	"strings"

	"gonum.org/v1/plot"

	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/bench/internal/suite"
)

// overloadCharts show what is left of the server's room as more is asked for, and
// what becomes of it from second to second until after the load is gone.
func overloadCharts() []chart {
	goodput := func(file, title, x, kind string, measured []plot.Tick) chart {
		return chart{file, func(s *stats.Samples) (*plot.Plot, error) {
			p := newPlot(title)
			p.X.Label.Text, p.Y.Label.Text = x, suite.Goodput
			p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(measured)
			return upright(p, only(s, suite.Overload, suite.Goodput, kind), suite.Overload, suite.Goodput, 1)
		}}
	}
	seconds := func(file, kase string) chart {
		return chart{file, func(s *stats.Samples) (*plot.Plot, error) {
			p := newPlot("Lock cycles: " + kase + ", then 5 callers")
			p.X.Label.Text, p.Y.Label.Text = "seconds"+lastLoaded(s, kase), suite.Rate
			return upright(p, s, suite.OverTime(kase), suite.Rate, suite.Room)
		}}
	}
	return []chart{
		goodput("overload.svg", "Arrivals beyond the room of the server", "offered, as multiples of the room", " C", ticks(suite.Offered)),
		goodput("overload-closed.svg", "Callers beyond the room of the server", "callers", " callers", ticks(suite.ClosedCrowds)),
		seconds("overload-time-2c.svg", suite.OpenCase(2)),
		seconds("overload-time-5c.svg", suite.OpenCase(5)),
		seconds("overload-time-600.svg", suite.ClosedCase(600)),
		seconds("overload-time-10000.svg", suite.ClosedCase(10_000)),
	}
}

func ticks[T int | float64](values []T) (all []plot.Tick) {
	for _, v := range values {
		all = append(all, plot.Tick{Value: float64(v), Label: fmt.Sprint(v)})
	}
	return all
}

// lastLoaded says when the load was gone.
func lastLoaded(s *stats.Samples, kase string) string {
	for _, who := range s.Whos(suite.Overload, suite.Loaded) {
		if of := s.Of(stats.Name{Part: suite.Overload, Case: kase, Who: who, Metric: suite.Loaded}); len(of) > 0 {
			return fmt.Sprintf("; after %g the load is gone", of[0])
		}
	}
	return ""
}

// upright has a line for every contender over an axis that begins at nothing and
// reaches most at least.
func upright(p *plot.Plot, s *stats.Samples, part, metric string, most float64) (*plot.Plot, error) {
	some, err := addLines(p, s, part, metric)
	if err != nil || !some {
		return nil, err
	}
	p.Y.Min, p.Y.Max = 0, 1.4*max(p.Y.Max, most) // room for the legend
	return p, nil
}

// only has the samples of cases that end so.
func only(s *stats.Samples, part, metric, ending string) *stats.Samples {
	some := &stats.Samples{}
	for _, kase := range s.Cases(part, metric) {
		if !strings.HasSuffix(kase, ending) {
			continue
		}
		for _, who := range s.Whos(part, metric) {
			name := stats.Name{Part: part, Case: kase, Who: who, Metric: metric}
			for _, value := range s.Of(name) {
				some.Add(name, value)
			}
		}
	}
	return some
}
