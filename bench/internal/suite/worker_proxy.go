package suite

import (
	"context"

	"github.com/httplatch/httplatch/bench/internal/delay"
	"github.com/httplatch/httplatch/bench/internal/host"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

// Proxies have their own process: what they cost is no contender's.

func delayWorker(ctx context.Context, j job) (worker, error) {
	p, err := delay.Listen(ctx, j.Addr, j.Delay)
	if err != nil {
		return worker{}, err
	}
	return worker{
		ready:   report{Addr: p.Addr()},
		measure: func(context.Context) (report, error) { return report{}, nil },
		close:   p.Close,
	}, nil
}

// stallsWorker delays replies to commands with stalledKey. It forgets, whenever it
// is asked to measure, which commands it has seen.
func stallsWorker(j job) (worker, error) {
	proxies, end, ended := make(chan *respproxy.Proxy, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- host.Run(func(h *host.Host) error {
			proxies <- respproxy.Start(h, j.Addr)
			<-end
			return nil
		})
	}()
	select {
	case err := <-ended:
		return worker{}, err
	case p := <-proxies:
		return worker{
			ready: report{Addr: p.Addr()},
			measure: func(context.Context) (report, error) {
				p.Clear()
				if j.Delay > 0 {
					p.On(respproxy.Match{Key: stalledKey, Func: firstTime()}, respproxy.DelayReply(j.Delay))
				}
				return report{}, nil
			},
			close: func() error {
				close(end)
				return <-ended
			},
		}, nil
	}
}
