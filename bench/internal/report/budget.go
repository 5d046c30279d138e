package report

import (
	"fmt"

	"github.com/httplatch/httplatch/bench/internal/stats"
)

// budget is what a row has to keep. The zero budget is none.
type budget struct {
	text  string
	holds func(value, ratio stats.Spread) bool
}

func atLeast(ratio float64) budget {
	return budget{fmt.Sprintf(">= %g x", ratio), func(_, r stats.Spread) bool { return r.Median >= ratio }}
}

func ratioAtMost(ratio float64) budget {
	return budget{fmt.Sprintf("<= %g x", ratio), func(_, r stats.Spread) bool { return r.Median <= ratio }}
}

func atMost(value float64) budget {
	return budget{fmt.Sprintf("<= %g", value), func(v, _ stats.Spread) bool { return v.Median <= value }}
}

func (b budget) verdict(value, ratio stats.Spread) string {
	switch {
	case b.holds == nil:
		return ""
	case b.holds(value, ratio):
		return "held"
	}
	return "missed"
}
