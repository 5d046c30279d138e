package report

import (
	"github.com/httplatch/httplatch/bench/internal/shop"
	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/bench/internal/suite"
)

// shopRows are about work in transactions of PostgreSQL.
func shopRows(s *stats.Samples) []row {
	var all []row
	for _, callers := range suite.Buyers {
		first := atLeast(0.55)
		if callers > 8 {
			first = atLeast(0.48)
		}
		all = append(all, besideBare(suite.FirstCase(callers), shop.Bare, first)...)
		all = append(all, besideBare(suite.SlowCase(callers), shop.Bare, budget{})...)
		all = append(all, besideBare(suite.ReplayCase(callers), suite.SelectOfAnswer, atLeast(0.55))...)
	}
	all = append(all, costRows()...)
	all = append(all, receiptRows(s)...)
	return append(all, cleanUpRows(s)...)
}

// costRows show the cost of an order to PostgreSQL: CPU, log, versions of rows, plans and
// conflicts.
func costRows() []row {
	var all []row
	for _, callers := range suite.Buyers {
		for _, metric := range []string{suite.CPU, suite.ClientCPU, suite.WAL} {
			for _, who := range []string{shop.Ours, shop.OursSQL, shop.Idemlease} {
				all = append(all, versus(suite.Transactions, suite.FirstCase(callers), metric, who, shop.Bare))
			}
		}
	}
	hot := alone(suite.FirstCase(suite.Buyers[0]), suite.Transactions, suite.FirstCase(suite.Buyers[0]), suite.HeapOnly, shop.Ours)
	hot.budget = valueAtLeast(95)
	all = append(all, hot)
	for _, who := range []string{shop.Ours, shop.OursSQL, shop.Idemlease, shop.Bare} {
		r := alone(suite.SerializableCase, suite.Transactions, suite.SerializableCase, suite.NotServed, who)
		if who == shop.Ours {
			r.budget = atMost(0.5)
		}
		all = append(all, r)
	}
	grown := versus(suite.Transactions, suite.GrownCase, suite.Rate, suite.BeforeAnalyze, suite.AfterAnalyze)
	grown.budget = atLeast(0.9)
	return append(all, grown)
}

// receiptRows compare what it takes beside many receipts with what it takes beside the
// fewest.
func receiptRows(s *stats.Samples) []row {
	var all []row
	cases := s.Cases(suite.Receipts, suite.P50)
	for _, who := range []string{suite.JustClaims, suite.Orders, suite.Replays} {
		for _, kase := range cases[min(1, len(cases)):] {
			all = append(all, row{
				kase:    who + " beside " + kase,
				subject: stats.Name{Part: suite.Receipts, Case: kase, Who: who, Metric: suite.P50},
				against: stats.Name{Part: suite.Receipts, Case: cases[0], Who: who, Metric: suite.P50},
			})
		}
	}
	for _, kase := range cases {
		for _, metric := range []string{suite.TableBytes, suite.KeyBytes, suite.SweepBytes} {
			all = append(all, alone(kase, suite.Receipts, kase, metric, suite.Orders))
		}
	}
	return all
}

// cleanUpRows are about a table that is written to and cleaned up at once: at the end it
// is to be no larger than it was when the first receipts had gone.
func cleanUpRows(s *stats.Samples) []row {
	var all []row
	for _, kase := range s.Cases(suite.CleanUp, suite.EndSize) {
		for _, metric := range []string{suite.P50, suite.P99, suite.MostRows, suite.MostOver, suite.MostDead, suite.HalfSize, suite.EndSize} {
			all = append(all, alone(kase, suite.CleanUp, kase, metric, shop.Ours))
		}
		all = append(all, row{
			kase:    "size at the end over that at half time",
			subject: stats.Name{Part: suite.CleanUp, Case: kase, Who: shop.Ours, Metric: suite.EndSize},
			against: stats.Name{Part: suite.CleanUp, Case: kase, Who: shop.Ours, Metric: suite.HalfSize},
			budget:  ratioAtMost(1.25),
		})
	}
	return all
}

// besideBare compares rates with what it would be by hand, and with idemlease.
func besideBare(kase, bare string, b budget) []row {
	pairs := []struct {
		who, against string
		budget       budget
	}{
		{shop.Ours, bare, b},
		{shop.OursSQL, bare, budget{}},
		{shop.Idemlease, bare, budget{}},
		{shop.Ours, shop.Idemlease, budget{}},
		{shop.OursSQL, shop.Idemlease, budget{}},
	}
	var all []row
	for _, p := range pairs {
		r := versus(suite.Transactions, kase, suite.Rate, p.who, p.against)
		r.budget = p.budget
		all = append(all, r)
	}
	return all
}
