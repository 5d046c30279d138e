package suite_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/internal/overload"
)

var (
	loadFor = flag.Duration("load", 10*time.Second, "overload, network: how long more is asked for than the server can do, and how long a phase lasts")
	thenFor = flag.Duration("then", 20*time.Second, "overload: how long five callers are watched then")
)

// room is the number of cycles a second that the proxy lets through, of two commands each.
const room = 750

// BenchmarkOverload measures a server that has room for 750 cycles a second and is asked for more: in an
// open loop, where arrivals do not wait for each other, and in a closed one. Then five
// callers are left. Its cases are named by arrivals a second, as multiples C of the room, or
// by callers.
func BenchmarkOverload(b *testing.B) {
	play := func(round int, kase string, l overload.Load) {
		l.For, l.Then = *loadFor, *thenFor
		inTurns(b, round, kase, constructors(func(b *testing.B, constructor string) {
			reportOverload(b, l, scenario{Constructor: constructor, Room: 2 * room, Load: &l}.run(b))
		}))
	}
	for round := range *rounds {
		for _, multiple := range []float64{0.5, 1, 2, 5, 20} {
			play(round, fmt.Sprintf("%g C", multiple), overload.Load{PerSecond: multiple * room})
		}
		for _, callers := range []int{600, 3000, 10_000} {
			play(round, callersCase(callers), overload.Load{Callers: callers})
		}
	}
}

func reportOverload(b *testing.B, l overload.Load, o *outcome) {
	b.Helper()
	total := overload.Total(o.Load.Seconds)
	rate := float64(total.Done) / l.For.Seconds()
	b.ReportMetric(rate, report.Rate)
	b.ReportMetric(o.Room, report.Room)
	b.ReportMetric(rate/o.Room, report.Goodput)
	reportCalls(b, total.Done, total.Failed, total.Commands)
	for _, kind := range overload.Kinds() {
		b.ReportMetric(float64(total.Failed[kind])/l.For.Seconds(), report.FailedPerSecond(kind.String()))
	}
	b.ReportMetric(millis(o.Load.Served.P50), report.Granted50)
	b.ReportMetric(millis(o.Load.Served.P99), report.Granted99)
	b.ReportMetric(millis(o.Load.Refused.P50), report.Refused50)
	b.ReportMetric(millis(o.Load.Refused.P99), report.Refused99)
	b.ReportMetric(float64(total.Backlog), report.Backlog)
	b.ReportMetric(float64(total.Goroutines), report.Goroutines)
	b.ReportMetric(float64(total.Heap)/1e6, report.Heap)
	b.ReportMetric(millis(o.Load.Late.P99), report.LateStart)
	reportMachine(b, o.Load.Timers, o.Load.CPU)
	reportSeconds(b, o.Load.After)
}

// reportCalls reports the share of calls that were not served, and the commands of a served one.
func reportCalls(b *testing.B, done int64, failed overload.Failures, commands int64) {
	b.Helper()
	calls := float64(max(done+failed.All(), 1))
	b.ReportMetric(float64(commands)/float64(max(done, 1)), report.Commands)
	b.ReportMetric(100*float64(failed[overload.Unknown])/calls, report.Unknown)
	b.ReportMetric(100*float64(failed.All())/calls, report.NotServed)
}

// reportMachine reports how busy it was.
func reportMachine(b *testing.B, timers overload.Times, cpu overload.CPU) {
	b.Helper()
	b.ReportMetric(millis(timers.P99), report.LateTimers)
	b.ReportMetric(cpu.Self, report.OwnCPU)
	b.ReportMetric(cpu.Others, report.OthersCPU)
}

// reportSeconds reports the cycles of the first three seconds after it was over, and of the last.
func reportSeconds(b *testing.B, after []overload.Second) {
	b.Helper()
	for i, unit := range []string{report.After1, report.After2, report.After3} {
		if i < len(after) {
			b.ReportMetric(float64(after[i].Done), unit)
		}
	}
	if len(after) > 0 {
		b.ReportMetric(float64(after[len(after)-1].Done), report.AfterLast)
	}
}

const farTrip = 100 * time.Millisecond

// BenchmarkNetwork asks for half of the server's room while the way to it steps,
// drifts, loses packets, and comes back. Its cases are these phases, one after the other.
func BenchmarkNetwork(b *testing.B) {
	network := &overload.Network{PerSecond: room / 2, Phases: []overload.Phase{
		{Name: "near", For: *loadFor},
		{Name: "steps from 0.1 to 100 ms", For: *loadFor, From: farTrip, To: farTrip},
		{Name: "comes back", For: *loadFor},
		{Name: "drifts from 0.1 to 100 ms", For: *loadFor, To: farTrip},
		{Name: "drifts back", For: *loadFor, From: farTrip},
		{Name: "loses 1 % of packets", For: *loadFor, Lost: 0.01},
		{Name: "near again", For: *loadFor},
	}}
	for round := range *rounds {
		for _, constructor := range []string{withOpen, withNew} {
			o := scenario{Constructor: constructor, Room: 2 * room, Network: network}.run(b)
			for n, phase := range network.Phases {
				passed := o.Phases[n]
				measure(b, round, phase.Name, constructor, func(b *testing.B) {
					b.ReportMetric(float64(passed.Done)/phase.For.Seconds(), report.Rate)
					reportCalls(b, passed.Done, passed.Failed, passed.Commands)
					b.ReportMetric(millis(passed.Served.P50), report.Granted50)
					b.ReportMetric(millis(passed.Served.P99), report.Granted99)
				})
			}
		}
	}
}
