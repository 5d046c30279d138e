package redisstore_test

import (
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
)

// The effect of one reply in a thousand that is 100 ms late on the time of cycles of a Locker.
//
//	go test -run '^$' -bench SlowReplies -benchtime 1x ./lock/redisstore
func BenchmarkSlowReplies(b *testing.B) {
	const turn, rounds, late = 500 * time.Millisecond, 5, 100 * time.Millisecond
	for _, callers := range []int{64, 256} {
		b.Run(strconv.Itoa(callers), func(b *testing.B) {
			p := respproxy.Start(b, redistest.Shared(b).Addr())
			l := lock.New(open(b, p.URL()))
			for b.Loop() {
				spin(b, callers, turn, lockerCycle(l)) // connections
				var calm, slow []time.Duration
				for range rounds {
					_, times := spin(b, callers, turn, lockerCycle(l))
					calm = append(calm, times...)
					var n atomic.Int64
					rule := p.On(respproxy.Match{Name: "set|evalsha", Func: func([][]byte) bool { return n.Add(1)%1000 == 0 }}, respproxy.DelayReply(late))
					_, times = spin(b, callers, turn, lockerCycle(l))
					slow = append(slow, times...)
					rule.Remove()
				}
				slices.Sort(calm)
				slices.Sort(slow)
				b.ReportMetric(float64(len(calm))/2.5, "calm/s")
				b.ReportMetric(milliseconds(calm, 990), "calm-p99-ms")
				b.ReportMetric(milliseconds(calm, 999), "calm-p99.9-ms")
				b.ReportMetric(milliseconds(slow, 990), "slow-p99-ms")
				b.ReportMetric(milliseconds(slow, 999), "slow-p99.9-ms")
				b.ReportMetric(float64(len(slow))/float64(len(calm)), "slow/calm-rate")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func milliseconds(sorted []time.Duration, perMille int) float64 {
	return float64(sorted[len(sorted)*perMille/1000].Microseconds()) / 1000
}
