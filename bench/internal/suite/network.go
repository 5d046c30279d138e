package suite

import (
	"context"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/internal/overload"
)

// Network is the part in which half of what the server has room for is asked of it, while
// the way to it steps, drifts, loses packets, and comes back. Its metrics are those of
// [Overload], and its cases these phases, one after the other, each for Settings.Load.
const Network = "network"

const farTrip = 100 * time.Millisecond

func (b *bench) phases() []overload.Phase {
	return []overload.Phase{
		{Name: "near", For: b.Load},
		{Name: "steps from 0.1 to 100 ms", For: b.Load, From: farTrip, To: farTrip},
		{Name: "comes back", For: b.Load},
		{Name: "drifts from 0.1 to 100 ms", For: b.Load, To: farTrip},
		{Name: "drifts back", For: b.Load, From: farTrip},
		{Name: "loses 1 % of packets", For: b.Load, Lost: 0.01},
		{Name: "near again", For: b.Load},
	}
}

func measureNetwork(ctx context.Context, b *bench) error {
	constructors := []string{withOpen, withNew}
	return b.rounds(ctx, len(constructors), func(i int) error {
		if !b.chosen(constructors[i]) {
			return nil
		}
		network := &overload.Network{PerSecond: Room / 2, Phases: b.phases()}
		o, err := b.play(ctx, scenario{Constructor: constructors[i], Room: 2 * Room, Network: network})
		if err != nil {
			return fmt.Errorf("%s: %w", constructors[i], err)
		}
		for n, phase := range network.Phases {
			b.addPhase(phase, constructors[i], o.Phases[n])
		}
		return nil
	})
}

func (b *bench) addPhase(phase overload.Phase, who string, p overload.Passed) {
	add := func(metric string, value float64) { b.add(phase.Name, who, metric, value) }
	refused := float64(p.Failed.All()) / float64(max(p.Done+p.Failed.All(), 1))
	commands := float64(p.Commands) / float64(max(p.Done, 1))
	add(Rate, float64(p.Done)/phase.For.Seconds())
	add(NotServed, 100*refused)
	add(Commands, commands)
	add(UnknownShare, 100*float64(p.Failed[overload.Unknown])/float64(max(p.Done+p.Failed.All(), 1)))
	add(Served50, millis(p.Served.P50))
	add(Served99, millis(p.Served.P99))
	b.log("%-26s %-5s %4.0f/s, %.2f %% not served, p50 %v, p99 %v, %.2f commands a cycle; %s", phase.Name, who, float64(p.Done)/phase.For.Seconds(),
		100*refused, p.Served.P50.Round(time.Microsecond), p.Served.P99.Round(time.Microsecond), commands, failuresText(p.Failed))
}
