package chart

import (
	"gonum.org/v1/plot"

	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/bench/internal/suite"
)

// killedChart shows how long users wait whose desk was killed.
func killedChart() chart {
	return chart{"killed.svg", func(s *stats.Samples) (*plot.Plot, error) {
		p := newPlot("A desk is killed, 100 times")
		p.X.Label.Text, p.Y.Label.Text = "how old the order was, s", suite.Freed
		p.X.Tick.Marker = plot.ConstantTicks(ticks([]int{0, 1, 2, 3}))
		const wholeLease = 30
		return upright(p, s, suite.Killed, suite.Freed, wholeLease)
	}}
}
