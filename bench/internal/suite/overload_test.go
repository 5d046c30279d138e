package suite_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/internal/overload"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
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

var quiet = flag.Float64("quiet", 0,
	"overload, outage: wait until everything else uses less than so many cores, and play a scenario again, four times at most, if it did not stay so; 0: do not look")

// How the store is made, each over a client with default options.
const (
	withOpen = "Open"
	withNew  = "New"
)

func constructors(run func(b *testing.B, constructor string)) []contender {
	return each([]string{withOpen, withNew}, func(c string) string { return c }, run)
}

// scenario is a load, a network or an outage. A child plays it, so that neither goroutines
// nor clean-ups of one are left to the next.
type scenario struct {
	Constructor string
	Room        int               // commands a second that the server has room for; 0: all it can do
	Load        *overload.Load    `json:",omitempty"`
	Network     *overload.Network `json:",omitempty"`
	Outage      *outage           `json:",omitempty"`
}

type outcome struct {
	Room     float64            // in cycles a second, by bare commands
	Load     *overload.Outcome  `json:",omitempty"`
	Phases   []overload.Passed  `json:",omitempty"`
	Recovery *overload.Recovery `json:",omitempty"`
}

// run has a child play the scenario, again if the machine was not quiet. The last play counts.
func (s scenario) run(b *testing.B) (o *outcome) {
	b.Helper()
	const attempts, patience = 5, 10 * time.Minute
	for range attempts {
		for began, busy := time.Now(), *quiet; *quiet > 0 && busy >= *quiet && time.Since(began) < patience; {
			busy = overload.Busy(time.Second)
		}
		a := must.Get(start(b, job{Kind: "scenario", Scenario: &s}).ask())(b)
		o = a.Outcome
		if *quiet == 0 || o.others() <= *quiet {
			break
		}
		b.Logf("others used %.1f cores", o.others())
	}
	return o
}

// others returns the cores that the rest of the machine used, without the usual share of a
// server that is used in full.
func (o outcome) others() float64 {
	const server = 0.7
	switch {
	case o.Load != nil:
		return o.Load.CPU.Others
	case o.Recovery == nil:
		return 0
	}
	return o.Recovery.CPU.Others - server
}

// play is the child's side of run.
func (s scenario) play(t *testing.T) *outcome {
	t.Helper()
	server := redistest.Start(t)
	proxy := startProxy(t, server.Addr(), s.Room)
	o := &outcome{}
	if s.Load != nil {
		o.Room = must.Get(redistest.Room(t.Context(), proxy.Addr(), 2*time.Second))(t)
	}
	locker := s.locker(t, proxy.Addr())
	switch {
	case s.Load != nil:
		result := s.Load.Run(t.Context(), locker, proxy)
		o.Load = &result
	case s.Network != nil:
		o.Phases = s.Network.Run(t.Context(), locker, proxy)
	default:
		recovery := must.Get(s.Outage.with(t, proxy, server).Run(t.Context(), locker, proxy))(t)
		o.Recovery = &recovery
	}
	return o
}

// locker has default options. Its clean-ups are not waited for at the end: the server goes.
func (s scenario) locker(t *testing.T, addr string) *lock.Locker {
	t.Helper()
	var store *redisstore.Store
	if s.Constructor == withOpen {
		store = must.Get(redisstore.Open(t.Context(), "redis://"+addr))(t)
	} else {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = client.Close() })
		store = redisstore.New(client)
	}
	l := lock.New(store)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = l.Close(ctx)
		_ = store.Close()
	})
	return l
}

var (
	recovery = flag.Duration("recovery", 30*time.Second, "outage: how long the callers are watched when it is over, at most")
	outages  = flag.String("outages", "1s,5s,60s", "outage: how long the server is gone")
)

// Faults: silence swallows commands and replies for good, and a paused server answers when it
// goes on.
const (
	silence = "of silence"
	refusal = "of refused connections"
	pause   = "of a paused server"
)

type outage struct {
	Fault              string
	Callers            int
	Before, For, After time.Duration
}

// BenchmarkOutage takes the server from 10,000 callers for a while.
func BenchmarkOutage(b *testing.B) {
	for round := range *rounds {
		for text := range strings.SplitSeq(*outages, ",") {
			d := must.Get(time.ParseDuration(text))(b)
			for _, fault := range []string{silence, refusal, pause} {
				inTurns(b, round, fmt.Sprintf("%g s %s", d.Seconds(), fault), constructors(func(b *testing.B, constructor string) {
					out := &outage{Fault: fault, Callers: 10_000, Before: 3 * time.Second, For: d, After: *recovery}
					reportOutage(b, scenario{Constructor: constructor, Outage: out}.run(b).Recovery)
				}))
			}
		}
	}
}

// with is the outage of that server behind that proxy.
func (o outage) with(t *testing.T, proxy *overload.Proxy, server *redistest.Server) overload.Outage {
	t.Helper()
	out := overload.Outage{Callers: o.Callers, Before: o.Before, For: o.For, After: o.After, Addr: proxy.Addr()}
	switch o.Fault {
	case silence:
		out.Begin = func(context.Context) error { proxy.Silence(); return nil }
		out.End = func(context.Context) error { proxy.Speak(); return nil }
	case refusal:
		out.Begin = func(context.Context) error { proxy.Refuse(); return nil }
		out.End = func(context.Context) error { return proxy.Admit() }
	case pause:
		out.Begin = func(context.Context) error { server.Stop(); return nil }
		out.End = func(context.Context) error { server.Cont(); return nil }
	default:
		require.FailNow(t, "no such fault", o.Fault)
	}
	return out
}

// reportOutage reports times after the end of the outage. One that has not come is reported as
// the time of watching, which it exceeds.
func reportOutage(b *testing.B, r *overload.Recovery) {
	b.Helper()
	late := 0
	seen := func(d time.Duration) time.Duration {
		if d != overload.Never {
			return d
		}
		late++
		return *recovery
	}
	healthy, grant := seen(r.Answer), seen(r.Grant)
	b.ReportMetric(millis(healthy), report.Healthy)
	b.ReportMetric(millis(grant), report.FirstGrant)
	b.ReportMetric(max(0, millis(grant-healthy)), report.GrantDelay)
	b.ReportMetric(millis(r.LastRefusal), report.LastRefusal)
	b.ReportMetric(float64(r.Since.All()), report.WrongRefusals)
	b.ReportMetric(float64(r.During[overload.CleanUp]+r.Since[overload.CleanUp]), report.ForCleanUp)
	b.ReportMetric(millis(seen(r.Empty)), report.BacklogGone)
	b.ReportMetric(float64(late), report.NotInTime)
	b.ReportMetric(r.Before, report.RateBefore)
	b.ReportMetric(float64(r.Peak.Backlog), report.Backlog)
	b.ReportMetric(float64(r.Peak.Goroutines), report.Goroutines)
	b.ReportMetric(float64(r.Peak.Heap)/1e6, report.Heap)
	reportMachine(b, r.Timers, r.CPU)
	reportSeconds(b, r.Seconds)
}
