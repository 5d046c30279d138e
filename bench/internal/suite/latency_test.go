package suite_test

import (
	"context"
	"testing"
	"time"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/report"
)

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
