package suite

import (
	"context"
	"errors"
	"time"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/stats"
)

// Latency is the part in which the server is far away: behind a proxy, in a
// separate process, that delays what goes through it by half of RoundTrip in
// each direction. Cases are those of CallersCase.
const Latency = "latency"

// RoundTrip is how long an answer takes at least.
const RoundTrip = 5 * time.Millisecond

// PingCase and Through name the figure that shows what the proxy does: how long one
// PING takes through it.
const (
	PingCase = "a PING"
	Through  = "the delay proxy"
)

// FarCallers are how many there are at once.
var FarCallers = []int{64, 256, 1024}

func measureLatency(ctx context.Context, b *bench) (err error) {
	srv, peers := b.server(), peer.All()
	sent, err := b.cycleCommands(ctx, srv, peers)
	if err != nil {
		return err
	}
	proxy, err := hire(ctx, 1, job{Kind: jobDelay, Addr: srv.addr, Delay: RoundTrip / 2})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.dismiss()) }()
	addr := proxy.members[0].ready.Addr
	if err := b.pings(ctx, addr); err != nil {
		return err
	}
	return b.fewRounds(ctx, len(peers)*len(FarCallers), func(i int) error {
		p, sent, callers := peers[i/len(FarCallers)], sent[i/len(FarCallers)], FarCallers[i%len(FarCallers)]
		if err := srv.flush(ctx); err != nil {
			return err
		}
		return b.use(ctx, p, addr, func(l peer.Locker) error {
			kase := CallersCase(callers)
			warm := b.Window / 2
			if callers > 256 {
				warm *= 2 // with twenty connections 1,024 callers need half a second for their first cycle
			}
			r, err := b.steady(ctx, srv, kase, p.Name, sent, callers, warm, b.Window, cycles(l, callers))
			if err != nil {
				return err
			}
			b.addTimes(kase, p.Name, r)
			return nil
		})
	})
}

// pings shows that the proxy does what it is said to do.
func (b *bench) pings(ctx context.Context, addr string) error {
	client := peer.NewClient(peer.Target{Addr: addr, Pool: 1})
	defer func() { _ = client.Close() }()
	ping := func(ctx context.Context, _, _ int) error { return client.Ping(ctx).Err() }
	if _, err := load.Times(ctx, 1, 3, ping); err != nil {
		return err
	}
	r, err := load.Times(ctx, 1, 25, ping)
	if err != nil {
		return err
	}
	b.add(PingCase, Through, P50, micros(stats.Percentile(sorted(r.Took), 50)))
	return nil
}
