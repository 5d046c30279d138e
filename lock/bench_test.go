package lock_test

import (
	"context"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/httplatch/httplatch/lock"
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
