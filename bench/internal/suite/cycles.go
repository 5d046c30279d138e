package suite

import (
	"context"
	"fmt"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
)

// Cycles is the part in which callers take and release keys of their own.
const Cycles = "cycles"

// Callers are how many there are at once.
var Callers = []int{1, 8, 64, 256, 1024}

// Few callers wait most of the time for the machine to wake somebody up, and how
// long it takes for that changes by half from one second to the next. So they are
// measured fewTimes as often.
const (
	few      = 8
	fewTimes = 3
)

// CallersCase names the case.
func CallersCase(n int) string { return fmt.Sprintf("%d callers", n) }

func measureCycles(ctx context.Context, b *bench) error {
	srv, peers := b.server(), peer.All()
	sent := make([]map[string]int, len(peers))
	for i, p := range peers {
		err := b.use(ctx, p, srv.addr, func(l peer.Locker) (err error) {
			sent[i], err = srv.cycleCommands(ctx, l, 100)
			return err
		})
		if err != nil {
			return err
		}
	}
	return b.rounds(ctx, 1, func(int) error {
		for _, callers := range Callers {
			times := 1
			if callers <= few {
				times = fewTimes
			}
			for range times {
				err := b.shuffled(ctx, len(peers), func(i int) error {
					return b.measureCycle(ctx, srv, peers[i], callers, sent[i])
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// measureCycle measures one peer once. sent are the commands that it sends.
func (b *bench) measureCycle(ctx context.Context, srv *server, p peer.Peer, callers int, sent map[string]int) error {
	if err := srv.flush(ctx); err != nil {
		return err
	}
	return b.use(ctx, p, srv.addr, func(l peer.Locker) error {
		key := keys(callers)
		op := func(ctx context.Context, caller, n int) error { return peer.Cycle(ctx, l, key(caller, n)) }
		if _, err := load.Closed(ctx, callers, b.Window/5, op); err != nil {
			return err
		}
		before, err := srv.usage(ctx)
		if err != nil {
			return err
		}
		r, err := load.Closed(ctx, callers, b.Window, op)
		if err != nil {
			return err
		}
		after, err := srv.usage(ctx)
		if err != nil {
			return err
		}
		kase := CallersCase(callers)
		cpu, commands := after.since(before, sent)
		b.add(kase, p.Name, CPU, cpu/float64(len(r.Took)))
		b.add(kase, p.Name, CommandCPU, commands/float64(len(r.Took)))
		b.addTimes(kase, p.Name, r)
		return nil
	})
}

// cycleCommands are the commands of n cycles, after some that load scripts and
// open connections.
func (s *server) cycleCommands(ctx context.Context, l peer.Locker, n int) (map[string]int, error) {
	const callers = 64
	key := keys(callers)
	op := func(ctx context.Context, caller, n int) error { return peer.Cycle(ctx, l, key(caller, n)) }
	if _, err := load.Times(ctx, callers, callers, op); err != nil {
		return nil, err
	}
	return s.monitor(ctx, func() error {
		_, err := load.Times(ctx, callers, n, op)
		return err
	})
}
