package suite

import (
	"context"
	"fmt"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
)

// refusalsWorker is the other end of refusedAmong.
func refusalsWorker(ctx context.Context, j job) (worker, error) {
	p, ok := peer.Named(j.Peer)
	if !ok {
		return worker{}, fmt.Errorf("no peer %q", j.Peer)
	}
	l, err := p.Open(ctx, peer.Target{Addr: j.Addr, Pool: j.Pool})
	if err != nil {
		return worker{}, err
	}
	op := refusals(l)
	return worker{
		measure: func(ctx context.Context) (report, error) {
			before, err := processCPU()
			if err != nil {
				return report{}, err
			}
			warm, err := load.Closed(ctx, j.Callers, j.Window/5, op)
			if err != nil {
				return report{}, err
			}
			r, err := load.Closed(ctx, j.Callers, j.Window, op)
			if err != nil {
				return report{}, err
			}
			after, err := processCPU()
			return report{Rate: r.Rate(), Times: len(warm.Took) + len(r.Took), CPU: after - before}, err
		},
		close: func() error { return l.Close(context.WithoutCancel(ctx)) },
	}, nil
}
