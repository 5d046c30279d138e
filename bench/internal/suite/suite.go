// Package suite has the measurements. Each part runs all its contenders in
// every round, in an order that is drawn anew, so that what happens to the
// machine meanwhile happens to all; see package stats for what is made of the
// rounds.
package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/bench/internal/host"
	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/stats"
)

// Metrics. Times are in microseconds unless their name says otherwise.
const (
	Rate       = "per second"
	P50        = "p50, µs"
	P99        = "p99, µs"
	P999       = "p99.9, µs"
	TailRatio  = "p99 / p50"
	Failed     = "failed"
	NotServed  = "not served, %"
	CPU        = "server CPU, µs"    // used_cpu_user + used_cpu_sys
	ClientCPU  = "client CPU, µs"    // getrusage of the process that asks
	CommandCPU = "commands' CPU, µs" // usec of commandstats
	Trips      = "round trips"       // commands that came over the network
	Beside     = "bytes a key beside it"
	Nanos      = "ns"
	Allocs     = "allocations"
	WaitBytes  = "bytes a waiting caller"
	WaitRoutes = "goroutines a waiting caller"
)

// Settings are what can be set for a run.
type Settings struct {
	Rounds int           // of every comparison
	Window time.Duration // how long one measurement lasts; a fifth of it is run before, unmeasured
	Pool   int           // Redis connections of each contender
	Rate   float64       // requests a second of the open loop
	Keys   []int         // the sizes of the part growth
	Many   int           // callers of the part crowd
	Seed   uint64        // of the order of contenders, and of arrivals
	Parts  []string      // names of those to run; none: all but the long ones
	Log    io.Writer     // says what is being measured

	Load, Then time.Duration   // of the part overload: how long more is asked for than the server can do, and how long it is watched then
	Outages    []time.Duration // of the part outage: how long the server is gone
	Recovery   time.Duration   // how long it is watched then, at most
	Receipts   []int           // of the part receipts: how many are kept
	Play       time.Duration   // of the part clean-up: how long an hour lasts
	Quiet      float64         // of both: cores that others may use meanwhile; 0: it does not matter
	Only       *regexp.Regexp  // of both: scenarios whose name matches; nil: all
}

// A Part is some of the measurements.
type part struct {
	name string
	run  func(ctx context.Context, b *bench) error
	long bool // takes longer than all others, or needs another server: it is run by name only
}

func parts() []part {
	return []part{
		{name: InProcess, run: measureInProcess},
		{name: RoundTrips, run: measureTrips},
		{name: Cycles, run: measureCycles},
		{name: Contended, run: measureContended},
		{name: Latency, run: measureLatency},
		{name: Crowd, run: measureCrowd},
		{name: Stalls, run: measureStalls},
		{name: HTTP, run: measureHTTP},
		{name: Growth, run: measureGrowth},
		{name: Overload, run: measureOverload, long: true},
		{name: Network, run: measureNetwork, long: true},
		{name: Outage, run: measureOutage, long: true},
		{name: FewCallers, run: measureFewCallers, long: true},
		{name: Scripts, run: measureScripts, long: true},
		{name: Killed, run: measureKilled, long: true},
		{name: Transactions, run: measureTransactions, long: true},
		{name: Receipts, run: measureReceipts, long: true},
		{name: CleanUp, run: measureCleanUp, long: true},
	}
}

// PartNames are the names that Settings.Parts may have.
func PartNames() []string {
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return names
}

// Run measures. It needs a redis-server, which it starts.
func Run(ctx context.Context, set Settings) (*stats.Samples, error) {
	for _, name := range set.Parts {
		if !slices.Contains(PartNames(), name) {
			return nil, fmt.Errorf("bench: no part %q; there are %s", name, strings.Join(PartNames(), ", "))
		}
	}
	b := &bench{Settings: set, random: rand.New(rand.NewPCG(set.Seed, 1)), samples: &stats.Samples{}} //nolint:gosec // not a secret
	for _, p := range parts() {
		if len(set.Parts) == 0 && p.long || len(set.Parts) > 0 && !slices.Contains(set.Parts, p.name) {
			continue
		}
		b.part, b.meter = p.name, nil
		began := time.Now()
		err := host.Run(func(h *host.Host) error {
			b.host = h
			return p.run(ctx, b)
		})
		if err != nil {
			return nil, fmt.Errorf("bench: %s: %w", p.name, err)
		}
		b.log("took %v", time.Since(began).Round(time.Second))
	}
	b.samples.Arrange(inOrder)
	return b.samples, nil
}

// bench is a run under way.
type bench struct {
	Settings

	random  *rand.Rand
	samples *stats.Samples
	part    string
	host    *host.Host     // of the part
	meter   *postgresMeter // of the part's server; nil if there is none
}

func (b *bench) log(format string, args ...any) {
	_, _ = fmt.Fprintf(b.Log, "%-10s "+format+"\n", append([]any{b.part}, args...)...)
}

// chosen reports whether a scenario is to be run.
func (b *bench) chosen(name string) bool { return b.Only == nil || b.Only.MatchString(name) }

// add notes a figure of the part.
func (b *bench) add(kase, who, metric string, value float64) {
	b.samples.Add(stats.Name{Part: b.part, Case: kase, Who: who, Metric: metric}, value)
}

// rounds runs every one of n contenders once a round, in random order.
func (b *bench) rounds(ctx context.Context, n int, run func(i int) error) error {
	for round := range b.Rounds {
		b.log("round %d of %d", round+1, b.Rounds)
		if err := b.shuffled(ctx, n, run); err != nil {
			return err
		}
	}
	return nil
}

// fewRounds are rounds of a part whose contenders take long, or differ by much:
// five at most.
func (b *bench) fewRounds(ctx context.Context, n int, run func(i int) error) error {
	some := *b
	some.Rounds = min(b.Rounds, 5)
	return some.rounds(ctx, n, run)
}

// shuffled runs every one of n contenders once, in random order. What one has
// left to the garbage collector is not charged to the next.
func (b *bench) shuffled(ctx context.Context, n int, run func(i int) error) error {
	for _, i := range b.random.Perm(n) {
		if err := ctx.Err(); err != nil {
			return err
		}
		runtime.GC()
		if err := run(i); err != nil {
			return err
		}
	}
	return nil
}

// closed measures op, after a fifth of the time in which it only runs.
func (b *bench) closed(ctx context.Context, callers int, op load.Op) (load.Result, error) {
	if _, err := load.Closed(ctx, callers, b.Window/5, op); err != nil {
		return load.Result{}, err
	}
	return load.Closed(ctx, callers, b.Window, op)
}

// sorted are times in ascending order.
func sorted(took []time.Duration) []time.Duration {
	slices.Sort(took)
	return took
}

// addTimes notes how often and how long.
func (b *bench) addTimes(kase, who string, r load.Result) {
	b.add(kase, who, Rate, r.Rate())
	b.add(kase, who, Failed, float64(r.Failed))
	if len(r.Took) == 0 {
		return
	}
	slices.Sort(r.Took)
	p50, p99 := stats.Percentile(r.Took, 50), stats.Percentile(r.Took, 99)
	b.add(kase, who, P50, micros(p50))
	b.add(kase, who, P99, micros(p99))
	b.add(kase, who, P999, micros(stats.Percentile(r.Took, 99.9)))
	b.add(kase, who, TailRatio, float64(p99)/float64(p50))
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// use opens a peer for as long as f runs.
func (b *bench) use(ctx context.Context, p peer.Peer, addr string, f func(l peer.Locker) error) (err error) {
	l, err := p.Open(ctx, peer.Target{Addr: addr, Pool: b.Pool})
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	defer func() { err = errors.Join(err, l.Close(context.WithoutCancel(ctx))) }()
	if err := f(l); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	return nil
}

// keys are those that callers take in turn. No caller takes another one's.
func keys(callers int) func(caller, n int) string {
	const each = 64
	all := make([]string, callers*each)
	for i := range all {
		all[i] = fmt.Sprintf("user=%d", i)
	}
	return func(caller, n int) string { return all[caller*each+n%each] }
}
