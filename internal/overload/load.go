package overload

import (
	"context"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Few are the callers that are left when the load is gone.
const Few = 5

// Load describes the calls to a Locker: a closed loop of Callers, each of which begins anew when it
// is done, or, if PerSecond is set, arrivals that do not wait for each other. It lasts for whole
// seconds. Then a few callers remain.
type Load struct {
	Callers   int
	PerSecond float64
	For, Then time.Duration

	Stall time.Duration // how long the server stands still when a second is over
}

// Outcome is the result of a [Load].
type Outcome struct {
	Seconds []Second // under the load
	After   []Second // with a few callers

	Served, Refused Times // of Acquire, under the load, since the call was due
	Late            Times // of arrivals: how late they were started
	Timers          Times // how late they were, here: what the machine owes all of these
	CPU             CPU   // under the load
}

// Total is the sum of all seconds, and the most there was at the end of one.
func Total(seconds []Second) (t Second) {
	for _, s := range seconds {
		t.Done += s.Done
		t.Commands += s.Commands
		for k, n := range s.Failed {
			t.Failed[k] += n
		}
		t.Backlog = max(t.Backlog, s.Backlog)
		t.Goroutines = max(t.Goroutines, s.Goroutines)
		t.Heap = max(t.Heap, s.Heap)
	}
	return t
}

// Run puts the load on l, whose server is behind p. The few callers begin as
// the load ends, while what it has left is still on its way.
func (o Load) Run(ctx context.Context, l *lock.Locker, p *Proxy) Outcome {
	var outcome Outcome
	var late, timers histogram
	over := watchTimers(&timers)
	many := &crowd{locker: l, counts: &counts{}}
	if o.PerSecond > 0 {
		many.open(ctx, o.PerSecond, &late)
	} else {
		many.closed(ctx, "caller", o.Callers)
	}
	watched := &seconds{locker: l, proxy: p, counts: many.counts}
	before := readUsage()
	if o.Stall > 0 {
		trigger := time.AfterFunc(time.Second, func() { p.Stall(o.Stall) })
		defer trigger.Stop()
	}
	outcome.Seconds = watched.watch(o.For)
	over()
	outcome.CPU = readUsage().since(before)
	many.over.Store(true)
	outcome.Served, outcome.Refused, outcome.Late = many.counts.served.times(), many.counts.refused.times(), late.times()
	outcome.Timers = timers.times()

	few := &crowd{locker: l, counts: &counts{}}
	if o.Then > 0 {
		few.closed(ctx, "few", Few)
		watched.counts = few.counts
		outcome.After = watched.watch(o.Then)
	}
	few.end()
	many.end()
	return outcome
}

// Burst lets the callers do one cycle each, all at once.
func Burst(ctx context.Context, l *lock.Locker, callers int) BurstOutcome {
	var timers histogram
	over := watchTimers(&timers)
	burst := &crowd{locker: l, counts: &counts{}}
	now := time.Now()
	for i := range callers {
		burst.all.Go(func() { _ = burst.cycle(ctx, lock.Key("burst", fmt.Sprint(i)), now) })
	}
	burst.end()
	over()
	return BurstOutcome{burst.counts.failures(), burst.counts.served.times(), timers.times()}
}

// BurstOutcome is the result of a [Burst].
type BurstOutcome struct {
	Failed         Failures
	Served, Timers Times
}
