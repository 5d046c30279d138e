package suite

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/httplatch/httplatch/bench/internal/stats"
	"github.com/httplatch/httplatch/internal/overload"
)

// Overload is the part in which a server has room for 750 cycles a second, and
// more are asked for: in an open loop, where arrivals do not wait for each other,
// and in a closed one. Then five callers are left. Its cases begin with what is
// offered: arrivals a second as multiples of the room, or callers.
const Overload = "overload"

// OverTime is the part of the figures of each second: OverTime(case) has a case
// for each, which begins with its number. The load is gone after the last second
// of Settings.Load.
func OverTime(kase string) string { return Overload + " over time, " + kase }

// Metrics of Overload.
const (
	Bare         = "bare commands"          // cycles a second: the room
	Goodput      = "goodput, of C"          // part of Bare
	Commands     = "commands a cycle"       // sent by the client; infinite where nothing was done: of one cycle
	UnknownShare = "unknown, %"             // of all calls
	Refused50    = "p50 of a refusal, ms"   //
	Refused99    = "p99 of a refusal, ms"   //
	Served50     = "p50 of a grant, ms"     //
	Served99     = "p99 of a grant, ms"     //
	Backlog      = "clean-ups"              // the most at the end of a second
	Goroutines   = "goroutines"             // the most
	Heap         = "heap, MB"               // the most
	LateStart    = "arrivals late, p99, ms" // what the generator owes
	LateTimers   = "timers late, p99, ms"   // of this process
	OwnCPU       = "client CPU, cores"      // the proxy's among it
	OthersCPU    = "CPU of others, cores"   // of everything else on the machine, the server among it
	Loaded       = "load, s"                // for so long, and then 5 callers
	AfterFirst   = "5 callers, 1st second"  // cycles
	AfterSecond  = "5 callers, 2nd second"
	AfterThird   = "5 callers, 3rd second"
	AfterLast    = "5 callers, last second"
)

// Before names a contender of an earlier version.
func Before(who string) string { return who + ", before" }

// Room is how many cycles a second the proxy lets through, of two commands each.
const Room = 750

// Offered are the multiples of the room of the open loop, and the callers of the
// closed one.
var (
	Offered      = []float64{0.5, 1, 2, 5, 20}
	ClosedCrowds = []int{600, 3000, 10_000}
)

// OpenCase and ClosedCase name cases of Overload.
func OpenCase(multiple float64) string { return fmt.Sprintf("%g C", multiple) }

// ClosedCase is described at OpenCase.
func ClosedCase(callers int) string { return fmt.Sprintf("%d callers", callers) }

type overloadCase struct {
	name, constructor string
	load              overload.Load
}

func (b *bench) overloadCases() []overloadCase {
	var all []overloadCase
	for _, constructor := range []string{withOpen, withNew} {
		for _, multiple := range Offered {
			all = append(all, overloadCase{
				OpenCase(multiple), constructor,
				overload.Load{PerSecond: multiple * Room, For: b.Load, Then: b.Then},
			})
		}
		for _, callers := range ClosedCrowds {
			all = append(all, overloadCase{
				ClosedCase(callers), constructor,
				overload.Load{Callers: callers, For: b.Load, Then: b.Then},
			})
		}
	}
	return all
}

func measureOverload(ctx context.Context, b *bench) error {
	cases := b.overloadCases()
	return b.rounds(ctx, len(cases), func(i int) error {
		c := cases[i]
		if !b.chosen(c.name + ", " + c.constructor) {
			return nil
		}
		o, err := b.play(ctx, scenario{Constructor: c.constructor, Room: 2 * Room, Load: &c.load})
		if err != nil {
			return fmt.Errorf("%s, %s: %w", c.name, c.constructor, err)
		}
		b.addOverload(c, o)
		return nil
	})
}

func (b *bench) addOverload(c overloadCase, o outcome) {
	add := func(metric string, value float64) { b.add(c.name, c.constructor, metric, value) }
	total := overload.Total(o.Load.Seconds)
	rate := float64(total.Done) / c.load.For.Seconds()
	calls := float64(max(total.Done+total.Failed.All(), 1))
	add(Loaded, c.load.For.Seconds())
	add(Bare, o.Room)
	add(Rate, rate)
	add(Goodput, rate/o.Room)
	add(Commands, float64(total.Commands)/float64(max(total.Done, 1)))
	add(UnknownShare, 100*float64(total.Failed[overload.Unknown])/calls)
	for _, kind := range overload.Kinds() {
		add(PerSecond(kind), float64(total.Failed[kind])/c.load.For.Seconds())
	}
	add(Served50, millis(o.Load.Served.P50))
	add(Served99, millis(o.Load.Served.P99))
	add(Refused50, millis(o.Load.Refused.P50))
	add(Refused99, millis(o.Load.Refused.P99))
	add(Backlog, float64(total.Backlog))
	add(Goroutines, float64(total.Goroutines))
	add(Heap, float64(total.Heap)/1e6)
	add(LateStart, millis(o.Load.Late.P99))
	add(LateTimers, millis(o.Load.Timers.P99))
	add(OwnCPU, o.Load.CPU.Self)
	add(OthersCPU, o.Load.CPU.Others)
	for metric, second := range map[string]int{AfterFirst: 0, AfterSecond: 1, AfterThird: 2, AfterLast: len(o.Load.After) - 1} {
		if second >= 0 && second < len(o.Load.After) {
			add(metric, float64(o.Load.After[second].Done))
		}
	}
	b.addSeconds(c, append(o.Load.Seconds, o.Load.After...))
	b.log("%-14s %-5s %4.2f of %.0f, %.2f commands a cycle, p50 of a refusal %v; then %d, %s", c.name, c.constructor, rate/o.Room, o.Room,
		float64(total.Commands)/float64(max(total.Done, 1)), o.Load.Refused.P50.Round(time.Microsecond), overload.Done(o.Load.After), failuresText(total.Failed))
}

func (b *bench) addSeconds(c overloadCase, seconds []overload.Second) {
	for n, second := range seconds {
		b.samples.Add(stats.Name{Part: OverTime(c.name), Case: fmt.Sprintf("%d s", n+1), Who: c.constructor, Metric: Rate}, float64(second.Done))
		b.samples.Add(stats.Name{Part: OverTime(c.name), Case: fmt.Sprintf("%d s", n+1), Who: c.constructor, Metric: Backlog}, float64(second.Backlog))
	}
}

// PerSecond is the metric of how many calls failed in this way.
func PerSecond(kind overload.Kind) string { return kind.String() + ", per second" }

func failuresText(f overload.Failures) string {
	var some []string
	for _, kind := range overload.Kinds() {
		if f[kind] > 0 {
			some = append(some, fmt.Sprintf("%d %s", f[kind], kind))
		}
	}
	return strings.Join(some, ", ")
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
