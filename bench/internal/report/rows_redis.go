package report

import (
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/bench/internal/suite"
)

// scriptRows compare a server's own compare-and-act with scripts.
func scriptRows() []row {
	of := func(kase, metric, against string, b budget) row {
		r := versus(suite.Scripts, kase, metric, peer.Ours, against)
		r.kase, r.budget = "the server's own compare-and-act, "+kase, b
		return r
	}
	many := suite.CallersCase(256)
	return []row{
		of(many, suite.CPU, peer.Scripted, ratioAtMost(0.62)),
		of(suite.Renewals, suite.CPU, peer.Scripted, ratioAtMost(0.45)),
		of(many, suite.Rate, peer.Scripted, atLeast(1.2)),
		of(many, suite.Rate, peer.AutoPipelined, atLeast(1.5)),
	}
}

// fewRows compare cycles of few callers with each peer's.
func fewRows(s *stats.Samples) []row {
	var all []row
	for _, kase := range s.Cases(suite.FewCallers, suite.Rate) {
		for _, p := range peer.All()[1:] {
			r := versus(suite.FewCallers, kase, suite.Rate, peer.Ours, p.Name)
			r.kase, r.budget = "few callers, "+kase, atLeast(0.95)
			all = append(all, r)
		}
	}
	return all
}
