package report

import (
	"fmt"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/bench/internal/suite"
)

// far is what titles say of the part latency.
var far = fmt.Sprintf("%d ms of round trip, ", suite.RoundTrip.Milliseconds())

// latencyRows compare cycles over a long line. The budget, which is over an older
// version of this library, is for a run of both.
func latencyRows() []row {
	all := []row{alone("what the delay proxy makes of "+suite.PingCase, suite.Latency, suite.PingCase, suite.P50, suite.Through)}
	for _, callers := range suite.FarCallers {
		kase := suite.CallersCase(callers)
		for _, p := range peer.All() {
			if p.Name == peer.Defaults {
				continue
			}
			r := versus(suite.Latency, kase, suite.Rate, peer.Defaults, p.Name)
			r.kase = "lock cycles, " + far + kase
			all = append(all, r)
		}
	}
	return all
}

// crowdRows are first about the default budget: what is left of what 256 callers
// have, what is refused, and what a caller takes while it waits. Then about all.
func crowdRows() []row {
	few, many := suite.CallersCase(suite.Few), suite.CallersCase(suite.Many)
	var all []row
	add := func(title, kase, metric string, b budget) {
		for _, p := range peer.All() {
			r := alone(title, suite.Crowd, kase, metric, p.Name)
			if p.Name == peer.Defaults {
				r.budget = b
			}
			all = append(all, r)
		}
	}
	for _, p := range peer.All() {
		r := row{
			kase:    "lock cycles, " + many,
			subject: stats.Name{Part: suite.Crowd, Case: many, Who: p.Name, Metric: suite.Rate},
			against: stats.Name{Part: suite.Crowd, Case: few, Who: p.Name, Metric: suite.Rate},
		}
		if p.Name == peer.Defaults {
			r.budget = atLeast(0.8)
		}
		all = append(all, r)
	}
	add("calls, "+many, many, suite.NotServed, budget{})
	add("calls, "+suite.ColdBurst(suite.Many), suite.ColdBurst(suite.Many), suite.NotServed, atMost(1))
	add("memory, "+suite.Waiting(suite.Waiters(suite.Many)), suite.Waiting(suite.Waiters(suite.Many)), suite.WaitBytes, atMost(12<<10))
	return all
}

func contendedRows() []row {
	var all []row
	for _, kase := range []string{suite.OneProcess, suite.FourProcesses} {
		for _, p := range peer.All()[1:] {
			r := versus(suite.Contended, kase, suite.Rate, peer.Ours, p.Name)
			r.kase = "duplicates refused, " + kase
			all = append(all, r)
		}
		for _, p := range peer.All() {
			all = append(all, alone("commands sent for a refusal, "+kase, suite.Contended, kase, suite.Trips, p.Name))
		}
	}
	return all
}
