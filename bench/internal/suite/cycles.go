package suite

import (
	"context"
	"fmt"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
)

// Cycles is the part in which callers take and release their own keys.
const Cycles = "cycles"

// Callers are how many there are at once.
var Callers = []int{1, 8, 64, 256, 1024}

// Few callers wait most of the time for the machine to wake one of them up, and
// how long it takes for that changes by half from one second to the next. So they are
// measured fewTimes a round.
const (
	few      = 8
	fewTimes = 2
)

// CallersCase names the case.
func CallersCase(n int) string { return fmt.Sprintf("%d callers", n) }

// FewCallers is the part of the most usual loads, for machines that are idle, busy, or have
// one core for this process.
const FewCallers = "few callers"

func measureCycles(ctx context.Context, b *bench) error { return b.measureCycles(ctx, Callers) }

func measureFewCallers(ctx context.Context, b *bench) error {
	return b.measureCycles(ctx, []int{1, 2, 4, 8, 16, 32})
}

func (b *bench) measureCycles(ctx context.Context, of []int) error {
	srv, peers := b.server(), peer.All()
	sent, err := b.cycleCommands(ctx, srv, peers)
	if err != nil {
		return err
	}
	return b.rounds(ctx, 1, func(int) error {
		for _, callers := range of {
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
func (b *bench) measureCycle(ctx context.Context, srv *server, p peer.Peer, callers int, sent commands) error {
	if err := srv.flush(ctx); err != nil {
		return err
	}
	return b.use(ctx, p, srv.addr, func(l peer.Locker) error {
		op, kase := cycles(l, callers), CallersCase(callers)
		if _, err := load.Closed(ctx, callers, b.Window/5, op); err != nil {
			return err
		}
		r, err := b.charged(ctx, srv, kase, p.Name, sent, func() (load.Result, error) {
			return load.Closed(ctx, callers, b.Window, op)
		})
		if err != nil {
			return err
		}
		b.addTimes(kase, p.Name, r)
		return nil
	})
}

// cycles are those of callers that take their own keys in turn.
func cycles(l peer.Locker, callers int) load.Op {
	key := keys(callers)
	return func(ctx context.Context, caller, n int) error { return peer.Cycle(ctx, l, key(caller, n)) }
}

// cycleCommands are the commands of n cycles, after some that load scripts and
// open connections.
func (s *server) cycleCommands(ctx context.Context, l peer.Locker, n int) (commands, error) {
	const callers = 64
	op := cycles(l, callers)
	if _, err := load.Times(ctx, callers, callers, op); err != nil {
		return nil, err
	}
	return s.monitor(ctx, func() error {
		_, err := load.Times(ctx, callers, n, op)
		return err
	})
}
