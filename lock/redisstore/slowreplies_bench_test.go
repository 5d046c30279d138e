package redisstore_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

// The effect of one reply in a thousand that is 100 ms late on other replies:
// on the ones that shared no batch with it ("apart"), and on all.
//
//	go test -run '^$' -bench SlowReplies -benchtime 1x ./lock/redisstore
func BenchmarkSlowReplies(b *testing.B) {
	const callers, turn, rounds, late = 256, 500 * time.Millisecond, 5, 100 * time.Millisecond
	for name, query := range map[string]string{"default": ""} {
		b.Run(name, func(b *testing.B) {
			p := respproxy.Start(b, redistest.Shared(b).Addr())
			s := open(b, p.URL()+query)
			for b.Loop() {
				spin(b, callers, turn, storeCycle(s)) // connections
				var calm, slow []time.Duration
				for range rounds {
					_, times := spin(b, callers, turn, storeCycle(s))
					calm = append(calm, times...)
					var n atomic.Int64
					rule := p.On(respproxy.Match{Name: "set|evalsha", Func: func([][]byte) bool { return n.Add(1)%1000 == 0 }}, respproxy.DelayReply(late))
					_, times = spin(b, callers, turn, storeCycle(s))
					slow = append(slow, times...)
					rule.Remove()
				}
				slices.Sort(calm)
				slices.Sort(slow)
				behind, _ := slices.BinarySearch(slow, late)
				apart := slow[:behind]
				b.ReportMetric(milliseconds(calm, 500), "calm-p50-ms")
				b.ReportMetric(milliseconds(calm, 999), "calm-p99.9-ms")
				b.ReportMetric(milliseconds(apart, 999), "apart-p99.9-ms")
				b.ReportMetric(milliseconds(slow, 999), "all-p99.9-ms")
				b.ReportMetric(100*float64(len(slow)-behind)/float64(len(slow)), "%behind")
				b.ReportMetric(float64(len(slow))/float64(len(calm)), "slow/calm-rate")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func milliseconds(sorted []time.Duration, perMille int) float64 {
	return float64(sorted[len(sorted)*perMille/1000].Microseconds()) / 1000
}
