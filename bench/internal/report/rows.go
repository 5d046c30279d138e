package report

import (
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/bench/internal/suite"
	"github.com/httplatch/httplatch/bench/internal/web"
)

// row is one line of the table: a figure, or two with their ratio.
type row struct {
	kase    string
	subject stats.Name
	against stats.Name // zero: the figure stands alone
	budget  budget
}

// rows are the table. Those of which nothing was measured are left out when it
// is made.
func rows(s *stats.Samples) []row {
	var all []row
	all = append(all, cycleRows(s)...)
	all = append(all, failureRows(s)...)
	all = append(all, latencyRows()...)
	all = append(all, crowdRows()...)
	all = append(all, contendedRows()...)
	all = append(all, tailRows()...)
	all = append(all, tripRows()...)
	all = append(all, inProcessRows()...)
	all = append(all, httpRows(s)...)
	all = append(all, growthRows(s)...)
	all = append(all, overloadRows(s)...)
	all = append(all, scriptRows()...)
	all = append(all, fewRows(s)...)
	return append(all, shopRows(s)...)
}

// cycleRows compare cycles with each peer's, by callers.
func cycleRows(s *stats.Samples) []row {
	budgets := map[string]map[string]budget{
		suite.CallersCase(1): {peer.Bare: atLeast(0.95)},
		suite.CallersCase(8): {peer.Bare: atLeast(0.95)},
		suite.CallersCase(256): {
			peer.Redislock: atLeast(3), peer.Redsync: atLeast(3.8), peer.Rueidislock: atLeast(1.8), peer.AutoPipelined: atLeast(1.5),
		},
	}
	var all []row
	for _, metric := range []string{suite.Rate, suite.CPU, suite.ClientCPU} {
		for _, kase := range s.Cases(suite.Cycles, metric) {
			if metric != suite.Rate && kase != suite.CallersCase(1) && kase != suite.CallersCase(256) {
				continue // the rest is among the details
			}
			for _, p := range peer.All()[1:] {
				r := versus(suite.Cycles, kase, metric, peer.Ours, p.Name)
				r.kase = "lock cycles, " + kase
				if metric == suite.Rate {
					r.budget = budgets[kase][p.Name]
				}
				all = append(all, r)
			}
		}
	}
	for _, most := range []struct{ callers, allocs int }{{8, 22}, {256, 12}} {
		kase := suite.CallersCase(most.callers)
		r := alone("a lock cycle, "+kase, suite.Cycles, kase, suite.Allocs, peer.Ours)
		r.budget = atMost(float64(most.allocs))
		all = append(all, r)
	}
	return all
}

// failureRows list the contenders that gave up on cycles in any round.
func failureRows(s *stats.Samples) []row {
	var all []row
	for _, of := range []struct{ part, where string }{{suite.Cycles, ""}, {suite.Latency, far}} {
		for _, kase := range s.Cases(of.part, suite.Failed) {
			for _, p := range peer.All() {
				r := alone("lock cycles given up, "+of.where+kase, of.part, kase, suite.Failed, p.Name)
				if stats.Over(s.Of(r.subject)).Max > 0 {
					all = append(all, r)
				}
			}
		}
	}
	return all
}

// tailRows are about the tail at 256 callers, and what one late reply in a
// thousand does to the other cycles.
func tailRows() []row {
	var all []row
	for _, p := range peer.All() {
		all = append(all, alone("tail of a cycle, "+suite.CallersCase(256), suite.Cycles, suite.CallersCase(256), suite.TailRatio, p.Name))
	}
	for _, kase := range []string{suite.FewDisturbed, suite.Disturbed} {
		for i, p := range peer.All() {
			r := alone("the other cycles, "+kase, suite.Stalls, kase, suite.P99, p.Name)
			if i == 0 {
				r.budget = atMost(50_000)
			}
			all = append(all, r)
		}
	}
	return all
}

func tripRows() []row {
	var all []row
	for i, p := range peer.All() {
		r := alone("commands sent, "+suite.TripsOfCycle, suite.RoundTrips, suite.TripsOfCycle, suite.Trips, p.Name)
		if i == 0 {
			r.budget = atMost(2)
		}
		all = append(all, r)
	}
	for _, t := range []struct {
		kase, who string
		budget    budget
	}{
		{suite.TripsOfFirst, web.LockRedis, atMost(2)},
		{suite.TripsOfFirst, web.OnceRedis, atMost(2)},
		{suite.TripsOfFirst, web.FiberOnceRedis, budget{}},
		{suite.TripsOfReplay, web.OnceRedis, atMost(1)},
		{suite.TripsOfReplay, web.FiberOnceRedis, budget{}},
		{suite.TripsOfDuplicate, web.LockRedis, atMost(0)},
		{suite.TripsOfDuplicate, web.OnceRedis, atMost(0)},
	} {
		r := alone("commands sent, "+t.kase, suite.RoundTrips, t.kase, suite.Trips, t.who)
		r.budget = t.budget
		all = append(all, r)
	}
	return all
}

// inProcessRows are what a guard adds to its handler. Idemlease is not in every
// run.
func inProcessRows() []row {
	var all []row
	add := func(who, metric string, b budget) {
		r := alone("guard on the memory store", suite.InProcess, suite.OverBare, metric, who)
		r.budget = b
		all = append(all, r)
	}
	add(suite.GuardLock, suite.Nanos, atMost(1200))
	add(suite.GuardLock, suite.Allocs, atMost(4))
	for _, g := range []struct {
		who, peer string
		budget    budget
	}{
		{suite.GuardFirst, suite.PeerFirst, ratioAtMost(0.5)},
		{suite.GuardReplay, suite.PeerReplay, ratioAtMost(0.6)},
	} {
		add(g.who, suite.Nanos, budget{})
		add(g.who, suite.Allocs, budget{})
		r := versus(suite.InProcess, suite.OverBare, suite.Nanos, g.who, g.peer)
		r.kase, r.budget = "guard on the memory store", g.budget
		all = append(all, r)
	}
	return all
}

// httpRows compare each guard with its own bare handler, by rate in the closed
// loop and by p99 in the open one, Lock with what is written by hand, and both
// libraries with each other.
func httpRows(s *stats.Samples) []row {
	bare := map[string][]string{
		web.Bare: {
			web.LockMemory, web.LockRedis, web.ByHandGoRedis, web.ByHandRueidis, web.OnceMemory, suite.Replayed(web.OnceMemory), web.OnceRedis, suite.Replayed(web.OnceRedis),
		},
		web.ByHandGoRedis: {web.LockRedis},
		web.ByHandRueidis: {web.LockRedis},
		web.FiberBare: {
			web.FiberOnceMemory, suite.Replayed(web.FiberOnceMemory), web.FiberOnceRedis, suite.Replayed(web.FiberOnceRedis),
		},
		web.FiberOnceMemory:                 {web.OnceMemory},
		web.FiberOnceRedis:                  {web.OnceRedis},
		suite.Replayed(web.FiberOnceMemory): {suite.Replayed(web.OnceMemory)},
		suite.Replayed(web.FiberOnceRedis):  {suite.Replayed(web.OnceRedis)},
	}
	var all []row
	for _, kase := range s.Cases(suite.HTTP, suite.Rate) {
		for _, against := range s.Whos(suite.HTTP, suite.Rate) {
			for _, who := range bare[against] {
				metric, b := suite.Rate, budget{}
				switch {
				case kase == suite.ClosedLoop:
				case against == web.ByHandGoRedis:
					metric, b = suite.P99, ratioAtMost(1.3)
				default: // where the rate is given, it is the times that differ
					metric = suite.P99
				}
				r := versus(suite.HTTP, kase, metric, who, against)
				r.kase, r.budget = "POST /orders, "+kase, b
				all = append(all, r)
			}
		}
	}
	return all
}

// growthRows compare cycles with those beside the fewest keys.
func growthRows(s *stats.Samples) []row {
	var all []row
	cases := s.Cases(suite.Growth, suite.Rate)
	for _, who := range []string{suite.MemoryStore, suite.RedisStore} {
		for i, kase := range cases {
			if i > 0 {
				r := row{
					kase:    "lock cycles beside " + kase,
					subject: stats.Name{Part: suite.Growth, Case: kase, Who: who, Metric: suite.Rate},
					against: stats.Name{Part: suite.Growth, Case: cases[0], Who: who, Metric: suite.Rate},
				}
				if who == suite.MemoryStore {
					r.budget = atLeast(0.85)
				}
				all = append(all, r)
			}
		}
		for _, kase := range cases {
			r := alone(kase, suite.Growth, kase, suite.Beside, who)
			if who == suite.MemoryStore && kase == cases[len(cases)-1] {
				r.budget = atMost(250)
			}
			all = append(all, r)
		}
	}
	return all
}

func versus(part, kase, metric, subject, against string) row {
	return row{
		kase:    kase,
		subject: stats.Name{Part: part, Case: kase, Who: subject, Metric: metric},
		against: stats.Name{Part: part, Case: kase, Who: against, Metric: metric},
	}
}

func alone(title, part, kase, metric, who string) row {
	return row{kase: title, subject: stats.Name{Part: part, Case: kase, Who: who, Metric: metric}}
}
