package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/bench/internal/suite"
	"github.com/httplatch/httplatch/internal/overload"
)

const preface = `# Results

Made by ` + "`make bench`" + `; not edited by hand. All contenders of a comparison run in every round, one after the other in random
order, so that other load on the machine affects all of them. A ratio is the median over the rounds of one contender's
figure divided by the other's in the same round, and its spread the smallest and the largest of these ratios. Up to 8 callers run
twice a round, since their figures depend most on how fast the machine wakes a waiting caller; all parts except cycles and in-process
have at most five rounds. How each contender is set up is in its file in [internal/peer](internal/peer) and
[internal/web](internal/web): "httplatch" has the client and the time-outs of its peers, "httplatch, defaults" has no
settings at all.

CPU is per cycle or request: client CPU is that of the calling process, which over HTTP runs clients, desk and guard; server CPU
is that of redis-server. Rows for repenguin22/idemlease need a checkout of it, since not every module proxy has that module:
` + "`make bench IDEMLEASE=its directory`" + `. A contender that is better than this library is listed like any other.
`

// Markdown writes the table, and then every figure.
func (r *Run) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n- %s\n\n", preface, r.about("\n- "))
	writeTable(&b, header, r.lines())
	b.WriteString("\n# All figures\n")
	for _, part := range suite.PartNames() {
		r.details(&b, part)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// metrics that a part may have, in the order of their columns.
var metrics = []string{
	suite.Rate, suite.P50, suite.P99, suite.P999, suite.TailRatio, suite.Failed, suite.NotServed, suite.ClientCPU, suite.CPU,
	suite.CommandCPU, suite.Trips, suite.Nanos, suite.Allocs, suite.Beside, suite.WaitBytes, suite.WaitRoutes,

	suite.Bare, suite.Goodput, suite.Commands, suite.UnknownShare,
	suite.PerSecond(overload.Unknown), suite.PerSecond(overload.Denied), suite.PerSecond(overload.CleanUp),
	suite.PerSecond(overload.Unavailable), suite.PerSecond(overload.Held), suite.PerSecond(overload.Other),
	suite.Served50, suite.Served99, suite.Refused50, suite.Refused99,
	suite.AfterFirst, suite.AfterSecond, suite.AfterThird, suite.AfterLast, suite.LateStart,

	suite.Healthy, suite.FirstGrant, suite.GrantDelay, suite.LastRefusal, suite.WrongRefusals, suite.ForCleanUp,
	suite.BacklogGone, suite.NotInTime, suite.RateBefore, suite.RateAfterFirst, suite.RateAfter2, suite.RateAfter3,

	suite.TableBytes, suite.KeyBytes, suite.SweepBytes,
	suite.MostRows, suite.MostOver, suite.MostDead, suite.HalfSize, suite.EndSize,

	suite.LateTimers, suite.OwnCPU, suite.OthersCPU, suite.Backlog, suite.Goroutines, suite.Heap,
}

// details writes the medians of a part.
func (r *Run) details(b *strings.Builder, part string) { r.medians(b, part, metrics) }

// medians writes those of some metrics, one line for a contender in a case.
func (r *Run) medians(b *strings.Builder, part string, metrics []string) {
	var columns, cases, whos []string
	for _, m := range metrics {
		if found := r.Samples.Cases(part, m); len(found) > 0 {
			columns = append(columns, m)
			cases = union(cases, found)
			whos = union(whos, r.Samples.Whos(part, m))
		}
	}
	if len(columns) == 0 {
		return
	}
	var lines [][]string
	for _, kase := range cases {
		for _, who := range whos {
			line, some := []string{kase, who}, false
			for _, m := range columns {
				values := r.Samples.Of(stats.Name{Part: part, Case: kase, Who: who, Metric: m})
				some = some || len(values) > 0
				line = append(line, figure(stats.Median(values)))
			}
			if some {
				lines = append(lines, line)
			}
		}
	}
	fmt.Fprintf(b, "\n## %s\n\n", part)
	writeTable(b, append([]string{"", ""}, columns...), lines)
}

func union(to, from []string) []string {
	for _, s := range from {
		if !slices.Contains(to, s) {
			to = append(to, s)
		}
	}
	return to
}

func writeTable(b *strings.Builder, header []string, lines [][]string) {
	write := func(cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	write(header)
	b.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, line := range lines {
		write(line)
	}
}
