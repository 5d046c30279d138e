// Package stats has what figures are made of: percentiles of one run, and
// medians and ratios over paired rounds.
package stats

import (
	"math"
	"slices"
	"time"
)

// Percentile is the smallest of ascending that p in 100 of them do not exceed.
// It panics if there are none.
func Percentile(ascending []time.Duration, p float64) time.Duration {
	const inexact = 1e-9 // 99.9 % of 1000 are 999, in binary fractions too
	at := int(math.Ceil(p*float64(len(ascending))/100-inexact)) - 1
	return ascending[max(at, 0)]
}

// Median is the middle of values, or the mean of the two in the middle. It is
// NaN of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	ascending := slices.Sorted(slices.Values(values))
	middle := len(ascending) / 2
	if len(ascending)%2 == 1 {
		return ascending[middle]
	}
	return (ascending[middle-1] + ascending[middle]) / 2
}

// Spread is a median over rounds, with the least and the most of them.
type Spread struct{ Median, Min, Max float64 }

// Over is the spread of values.
func Over(values []float64) Spread {
	if len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	return Spread{Median(values), slices.Min(values), slices.Max(values)}
}

// Ratio is the spread of a over b, round by round: what both had in common in a
// round, a busy machine for one, is in neither. Rounds that only one of the two
// has are left out.
func Ratio(a, b []float64) Spread {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = a[i] / b[i]
	}
	return Over(ratios)
}
