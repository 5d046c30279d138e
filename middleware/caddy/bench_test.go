package latchcaddy_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// BenchmarkGateway compares orders through a guard with orders through a plain reverse_proxy, by a
// Caddy of its own before a shop in Node, which does nothing with them.
func BenchmarkGateway(b *testing.B) {
	for _, bm := range []struct {
		name  string
		store func(b *testing.B) string // nil: no guard
	}{
		{"plain", nil},
		{"memory", func(*testing.B) string { return "memory" }},
		{"redis", func(b *testing.B) string { b.Helper(); return redistest.Shared(b).URL() }},
		{"postgres", func(b *testing.B) string { b.Helper(); return pgtest.DatabaseURL(b) }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			j := newJourney(b)
			app, guard, transport := "", "", "http"
			if bm.store != nil {
				app = "latch {\nstore " + bm.store(b) + "\n}\n"
				guard, transport = "latch {\nidempotent {\nscope {header.X-User}\nkey idempotency-key\n}\n}\n", "latch"
			}
			j.startCaddy(fmt.Sprintf("{\n%s}\n%s {\n%sreverse_proxy 127.0.0.1:%d {\ntransport %s\n}\n}", app, j.site(), guard, j.shop.port, transport))
			var (
				next, refused atomic.Int64
				mu            sync.Mutex
				took          []time.Duration
			)
			b.SetParallelism(customers)
			b.ResetTimer() // servers have started
			began := time.Now()
			b.RunParallel(func(pb *testing.PB) {
				var own []time.Duration
				for pb.Next() {
					key, sent := fmt.Sprint(b.N, "-", next.Add(1)), time.Now()
					status, text := j.ask(0, key, "nothing")
					for status == 503 { // more than the database can do
						refused.Add(1)
						status, text = j.ask(0, key, "nothing")
					}
					if status != 201 {
						b.Errorf("%d %s", status, text)
						return
					}
					own = append(own, time.Since(sent))
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, own...)
			})
			elapsed := time.Since(began)
			require.NotEmpty(b, took)
			slices.Sort(took)
			b.ReportMetric(float64(len(took))/elapsed.Seconds(), "requests/s")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(refused.Load()), "refused")
			b.ReportMetric(j.caddyMegabytes(), "Caddy-MB")
		})
	}
}
