package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// BenchmarkLock measures a guard on the memory store: the difference to "bare" is its cost.
func BenchmarkLock(b *testing.B) {
	bare := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	guarded := func(opts ...latch.LockOption) http.Handler {
		return latch.Lock(lock.New(memstore.New()), "user", byUser, opts...)(bare)
	}
	benchmarks := []struct {
		name string
		h    http.Handler
	}{
		{"bare", bare},
		{"lock", guarded()},
		{"failopen", guarded(latch.WithFailOpen())},
		{"cooldown", guarded(latch.WithCooldown(time.Nanosecond))},
	}
	for _, bm := range benchmarks {
		b.Run(bm.name, func(b *testing.B) {
			w, r := httptest.NewRecorder(), post("42")
			b.ReportAllocs()
			for b.Loop() {
				bm.h.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkRefused measures a duplicate.
func BenchmarkRefused(b *testing.B) {
	l := lock.New(memstore.New())
	lease, err := l.Acquire(b.Context(), lock.Key("user", "42"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = lease.Release(b.Context()) }()
	h := latch.Lock(l, "user", byUser)(http.HandlerFunc(created))
	r := post("42")
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}
