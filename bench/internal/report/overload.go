package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/bench/internal/suite"
)

// overloadRows show what is left of the server's room when more is asked for, at
// what cost, and how soon all is well again; next to the same of an earlier
// version, if its figures are there.
func overloadRows(s *stats.Samples) []row {
	over := []string{suite.OpenCase(2), suite.OpenCase(5), suite.ClosedCase(600), suite.ClosedCase(3000)}
	var all []row
	for _, kase := range s.Cases(suite.Overload, suite.Goodput) {
		budgets := map[string]budget{}
		if slices.Contains(over, kase) {
			budgets = map[string]budget{
				suite.Goodput: valueAtLeast(0.9), suite.Commands: atMost(2.3), suite.UnknownShare: atMost(1), suite.Refused50: atMost(5),
			}
		}
		for _, metric := range []string{suite.Goodput, suite.Commands, suite.UnknownShare, suite.Refused50, suite.AfterSecond} {
			all = append(all, sinceBefore(s, suite.Overload, kase, metric, budgets[metric])...)
		}
	}
	for _, kase := range s.Cases(suite.Outage, suite.FirstGrant) {
		budgets := map[string]budget{suite.GrantDelay: atMost(100), suite.ForCleanUp: atMost(0)}
		for _, metric := range []string{suite.GrantDelay, suite.LastRefusal, suite.ForCleanUp, suite.BacklogGone} {
			all = append(all, sinceBefore(s, suite.Outage, kase, metric, budgets[metric])...)
		}
	}
	return all
}

// sinceBefore has a row for each contender of this version.
func sinceBefore(s *stats.Samples, part, kase, metric string, b budget) (all []row) {
	whos := s.Whos(part, metric)
	for _, who := range whos {
		if strings.HasSuffix(who, suite.Before("")) {
			continue
		}
		r := alone(part+", "+kase, part, kase, metric, who)
		if r.budget = b; slices.Contains(whos, suite.Before(who)) {
			r.against = stats.Name{Part: part, Case: kase, Who: suite.Before(who), Metric: metric}
		}
		all = append(all, r)
	}
	return all
}

// valueAtLeast bounds the figure itself.
func valueAtLeast(value float64) budget {
	return budget{fmt.Sprintf(">= %g", value), func(v, _ stats.Spread) bool { return v.Median >= value }}
}

// The columns of docs/reliability.md.
var (
	documentedOverload = []string{
		suite.Goodput, suite.Commands, suite.UnknownShare, suite.Refused50, suite.Served99, suite.Backlog, suite.Goroutines, suite.Heap,
		suite.AfterFirst, suite.AfterSecond, suite.AfterThird, suite.AfterLast,
	}
	documentedNetwork = []string{suite.NotServed, suite.UnknownShare, suite.Served50, suite.Served99, suite.Commands}
	documentedOutage  = []string{
		suite.Healthy, suite.FirstGrant, suite.LastRefusal, suite.WrongRefusals, suite.ForCleanUp, suite.BacklogGone,
		suite.RateBefore, suite.RateAfterFirst, suite.RateAfter2, suite.RateAfter3,
	}
)

// PrintDetails writes, as Markdown, every figure of the parts that are not in
// RESULTS.md, and then those that docs/reliability.md has.
func (r *Run) PrintDetails(w io.Writer) error {
	var b strings.Builder
	r.details(&b, suite.Overload)
	r.details(&b, suite.Network)
	r.details(&b, suite.Outage)
	b.WriteString("\n# For docs/reliability.md\n")
	r.medians(&b, suite.Overload, documentedOverload)
	r.medians(&b, suite.Network, documentedNetwork)
	r.medians(&b, suite.Outage, documentedOutage)
	_, err := io.WriteString(w, b.String())
	return err
}
