package lock_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

func BenchmarkAcquireRelease(b *testing.B) {
	l := lock.New(memstore.New())
	b.Run("callers=1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e, err := l.Acquire(b.Context(), "user=42")
			if err != nil {
				b.Fatal(err)
			}
			if err := e.Release(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("callers=64", func(b *testing.B) {
		var caller atomic.Int64
		b.ReportAllocs()
		b.SetParallelism(64 / runtime.GOMAXPROCS(0))
		b.RunParallel(func(pb *testing.PB) {
			key := lock.Key("user", strconv.FormatInt(caller.Add(1), 10))
			for pb.Next() {
				e, err := l.Acquire(b.Context(), key)
				if err != nil {
					b.Error(err)
					return
				}
				if err := e.Release(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

func BenchmarkRefusedInProcess(b *testing.B) {
	l := lock.New(memstore.New())
	e, err := l.Acquire(b.Context(), "user=42")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = e.Release(context.Background()) }()
	refused := func(b *testing.B) {
		if _, err := l.Acquire(b.Context(), "user=42"); err == nil {
			b.Error("not refused")
		}
	}
	b.Run("callers=1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			refused(b)
		}
	})
	b.Run("callers=64", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(64 / runtime.GOMAXPROCS(0))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				refused(b)
			}
		})
	})
}

// BenchmarkWaitersLeave measures callers that have met a pending claim, and all leave at the same
// time.
func BenchmarkWaitersLeave(b *testing.B) {
	for _, n := range []int{10_000, 80_000} {
		b.Run("waiters="+strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s, arrived, hung := fault.New(), make(chan struct{}), make(chan struct{})
				s.Next(fault.Claim, func(context.Context, func() error) error {
					close(arrived)
					<-hung
					return lock.ErrNotApplied
				})
				l := lock.New(s, lock.WithLogger(quiet), lock.WithBudget(10*time.Minute), lock.WithLease(time.Hour), lock.WithMaxHold(time.Hour))
				ctx, leave := context.WithCancel(b.Context())
				var first, all sync.WaitGroup
				first.Go(func() { _ = l.Do(b.Context(), key, nothing) })
				<-arrived
				for range n {
					all.Go(func() { _, _ = l.Acquire(ctx, key) })
				}
				for l.Snapshot(1, func(string, string) bool { return true }).Holds[0].Waiting < n {
					runtime.Gosched()
				}
				b.StartTimer()
				leave()
				all.Wait()
				b.StopTimer()
				close(hung)
				first.Wait()
				_ = l.Close(b.Context())
				b.StartTimer()
			}
		})
	}
}
