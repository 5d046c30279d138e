// Package report makes the table of what was measured.
package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/httplatch/httplatch/bench/internal/stats"
)

// Run is what was measured, and where.
type Run struct {
	Machine Machine        `json:"machine"`
	Took    string         `json:"took"`
	Rounds  int            `json:"rounds"`
	Samples *stats.Samples `json:"samples"`
}

// header of the table. A ratio is the median over rounds of one contender's
// figure over the other's in the same round, and its spread the least and the
// most of them.
var header = []string{"measured", "", "who", "median", "against", "median", "ratio", "spread", "budget", "verdict"}

// lines are the table's cells, without what was not measured.
func (r *Run) lines() [][]string {
	var lines [][]string
	for _, row := range rows(r.Samples) {
		values, others := r.Samples.Of(row.subject), r.Samples.Of(row.against)
		if len(values) == 0 || len(others) == 0 && row.against != (stats.Name{}) {
			continue
		}
		value, ratio := stats.Over(values), stats.Over(nil)
		line := []string{row.kase, row.subject.Metric, row.subject.Who, figure(value.Median)}
		if row.against == (stats.Name{}) {
			line = append(line, "", "", "", spread(value, figure))
		} else {
			ratio = stats.Ratio(values, others)
			who := row.against.Who
			if who == row.subject.Who {
				who = row.against.Case
			}
			line = append(line, who, figure(stats.Median(others)), factor(ratio.Median), spread(ratio, factor))
		}
		lines = append(lines, append(line, row.budget.text, row.budget.verdict(value, ratio)))
	}
	return lines
}

// Print writes the machine and the table for a terminal.
func (r *Run) Print(w io.Writer) error {
	var text strings.Builder
	for _, line := range append([][]string{header}, r.lines()...) {
		text.WriteString(strings.Join(line, "\t") + "\n")
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintf(table, "%s\n\n%s", r.about("\n"), text.String())
	return cmp.Or(err, table.Flush())
}

func (r *Run) about(separator string) string {
	return strings.Join([]string{r.Machine.String(), fmt.Sprintf("medians of %d rounds, %s in all", r.Rounds, r.Took)}, separator)
}

// figure has three significant digits, and separates thousands.
func figure(v float64) string {
	switch magnitude := math.Abs(v); {
	case math.IsNaN(v):
		return ""
	case magnitude >= 1000:
		return thousands(int64(math.Round(v)))
	case magnitude >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case magnitude >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func thousands(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func factor(v float64) string { return figure(v) + " x" }

func spread(s stats.Spread, format func(float64) string) string {
	if s.Min == s.Max {
		return ""
	}
	return format(s.Min) + " .. " + format(s.Max)
}
