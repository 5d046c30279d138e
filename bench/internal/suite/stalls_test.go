package suite_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/report"
)

const stalledKey = "stalled"

// BenchmarkStalls measures how one reply in a thousand that comes 100 ms late affects the
// other cycles. The late ones are not counted, and all cases run through a proxy.
func BenchmarkStalls(b *testing.B) {
	const late = 100 * time.Millisecond
	cases := []struct {
		name    string
		callers int
		delay   time.Duration
	}{
		{"256 callers", 256, 0},
		{"256 callers, one reply in 1,000 late", 256, late},
		{"64 callers, one reply in 1,000 late", 64, late},
	}
	srv := startServer(b)
	proxies := make([]*child, len(cases))
	for i, c := range cases {
		proxies[i] = start(b, job{Kind: "stalls", Addr: srv.addr, Delay: c.delay})
	}
	for round := range *rounds {
		for i, c := range cases {
			inTurns(b, round, c.name, peers(func(b *testing.B, p peer.Peer) {
				srv.flush(b)
				_, err := proxies[i].ask()
				require.NoError(b, err)
				callers := most(c.callers)
				closedLoop(b, srv, nil, callers, othersThanStalled(open(b, p, proxies[i].ready.Addr), callers))
			}))
		}
	}
}

// firstTime reports whether it has not seen a command before. A reply is late, not a key: a
// caller that sends the same command again is answered.
func firstTime() func(args [][]byte) bool {
	var seen sync.Map
	return func(args [][]byte) bool {
		_, known := seen.LoadOrStore(string(bytes.Join(args, []byte{0})), nil)
		return !known
	}
}

// othersThanStalled are cycles of which one in a thousand is on a key whose replies the proxy delays.
func othersThanStalled(l peer.Locker, callers int) load.Op {
	const one = 1000
	key := keys(callers)
	return func(ctx context.Context, caller, n int) error {
		// Not all callers at once, and each soon.
		if (n+caller*37)%one != one-1 {
			return peer.Cycle(ctx, l, key(caller, n))
		}
		if err := peer.Cycle(ctx, l, fmt.Sprintf("%s=%d.%d", stalledKey, caller, n)); err != nil {
			return err
		}
		return load.ErrApart
	}
}

// BenchmarkLatency measures cycles with a server that is far away: behind a proxy that makes
// each round trip take 5 ms longer.
func BenchmarkLatency(b *testing.B) {
	srv := startServer(b)
	sent := srv.sentBy(b, peer.All())
	addr := start(b, job{Kind: "far", Addr: srv.addr, Delay: 5 * time.Millisecond}).ready.Addr
	measure(b, 0, "a PING", "the proxy", func(b *testing.B) {
		client := peer.NewClient(peer.Target{Addr: addr, Pool: 1})
		defer func() { _ = client.Close() }()
		ping := func(ctx context.Context, _, _ int) error { return client.Ping(ctx).Err() }
		times(b, 1, 3, ping)
		b.ReportMetric(micros(times(b, 1, 25, ping).Percentile(50)), report.P50)
	})
	for round := range *rounds {
		for _, callers := range []int{64, 256, 1024} {
			inTurns(b, round, callersCase(callers), peers(func(b *testing.B, p peer.Peer) {
				srv.flush(b)
				warm := *window / 2
				if callers > 256 {
					warm *= 2 // with twenty connections 1,024 callers need half a second for their first cycle
				}
				steady(b, srv, sent[p.Name], most(callers), warm, *window, cycles(open(b, p, addr), most(callers)))
			}))
		}
	}
}
