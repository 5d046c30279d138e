package memstore_test

import (
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// fill claims n keys for an hour, and returns the store.
func fill(tb testing.TB, n int) lock.Store {
	tb.Helper()
	s := memstore.New(memstore.WithLimits(2*n+100_000, 4<<30))
	for i := range n {
		if _, err := s.Claim(tb.Context(), "live="+strconv.Itoa(i), memoryClaim("token-"+strconv.Itoa(i), time.Hour)); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

func memoryClaim(token string, lease time.Duration) lock.Claim {
	return lock.Claim{Token: token, Attempt: 1, Owner: "host:1", Lease: lease}
}

func BenchmarkMemory(b *testing.B) {
	for _, live := range []int{0, 1_000, 100_000, 1_000_000} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("live=%d/callers=%d", live, callers), func(b *testing.B) {
				s := fill(b, live)
				keys := make([]string, 4096)
				for i := range keys {
					keys[i] = "user=" + strconv.Itoa(i)
				}
				ctx := b.Context()
				cycle := func(i int) {
					key, c := keys[i%len(keys)], memoryClaim("token", 30*time.Second)
					if e, err := s.Claim(ctx, key, c); err != nil || e.State != lock.Held {
						b.Error(e, err)
					}
					if _, err := s.Release(ctx, key, c); err != nil {
						b.Error(err)
					}
				}
				runtime.GC() // collects the garbage of filling the store, before the measurement
				b.ReportAllocs()
				if callers == 1 {
					i := 0
					for b.Loop() {
						cycle(i)
						i++
					}
					return
				}
				var next atomic.Int64
				b.ResetTimer()
				b.SetParallelism(callers / runtime.GOMAXPROCS(0))
				b.RunParallel(func(pb *testing.PB) {
					for i := int(next.Add(100)); pb.Next(); i++ {
						cycle(i)
					}
				})
			})
		}
	}
}

// BenchmarkPage is of the first page of a shard.
func BenchmarkPage(b *testing.B) {
	for _, live := range []int{10_000, 1_000_000} {
		s := fill(b, live).(lock.Inspector) //nolint:forcetypeassert // it is one
		for _, limit := range []int{50, 1000} {
			b.Run(fmt.Sprintf("live=%d/limit=%d", live, limit), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if page, _, err := s.Page(b.Context(), "32:", limit, nil); err != nil || len(page) == 0 {
						b.Fatal(len(page), err)
					}
				}
			})
		}
	}
}
