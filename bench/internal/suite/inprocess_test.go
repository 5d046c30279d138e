package suite_test

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/web"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// BenchmarkInProcess measures the cost of a guard on the memory store in addition to its
// handler, without a network.
func BenchmarkInProcess(b *testing.B) {
	all := each(guards(), func(g guarded) string { return g.who }, func(b *testing.B, g guarded) {
		handlers := []http.Handler{g.handler, g.guard()(g.handler)}
		var nanos, allocs [2]float64
		for _, i := range rand.Perm(len(handlers)) {
			runtime.GC()
			nanos[i], allocs[i] = serveAgain(b, handlers[i], g.key)
		}
		b.ReportMetric((nanos[1]-nanos[0])/1000, report.Added)
		b.ReportMetric(allocs[1]-allocs[0], report.Allocs)
	})
	for round := range *rounds {
		inTurns(b, round, "over the bare handler", all)
	}
}

const placed, made = `{"sku":"x","quantity":1}`, `{"id":"1","sku":"x","quantity":1}`

// guarded is a handler and the guard that it is measured with and without.
type guarded struct {
	who     string
	handler http.Handler
	guard   func() func(http.Handler) http.Handler
	key     func(n int) string // of the n-th request
}

func guards() []guarded {
	empty := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, made)
	})
	byUser := keyfunc.Header("X-User-ID")
	locks := func() func(http.Handler) http.Handler {
		return latch.Lock(lock.New(peer.NewMemory(100_000)), "user", byUser)
	}
	once := func() func(http.Handler) http.Handler {
		return latch.Idempotent(lock.New(peer.NewMemory(100_000_000)), byUser, keyfunc.IdempotencyKey)
	}
	same := func(int) string { return "k" }
	others := func(n int) string { return "k" + strconv.Itoa(n) }
	all := []guarded{
		{"Lock", empty, locks, same},
		{"Idempotent, first", answers, once, others},
		{"Idempotent, replay", answers, once, same},
	}
	if guard := web.Idemlease(); guard != nil {
		all = append(all,
			guarded{"repenguin22/idemlease, first", answers, guard, others},
			guarded{"repenguin22/idemlease, replay", answers, guard, same})
	}
	return all
}

// serveAgain sends requests that cost nothing themselves, for half of the window, and returns
// the cost of each.
func serveAgain(b *testing.B, h http.Handler, key func(n int) string) (nanos, allocs float64) {
	b.Helper()
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/orders", nil)
	r.ContentLength = int64(len(placed))
	r.Header.Set("X-User-ID", "42")
	body := &rewound{}
	w := &discard{header: make(http.Header)}
	keys := []string{""}
	r.Header["Idempotency-Key"] = keys
	send := func(n int) {
		body.Reset(placed)
		r.Body = body // a guard may have put its own copy there
		clear(w.header)
		keys[0] = key(n)
		h.ServeHTTP(w, r)
	}
	send(0)
	const looks = 256 // at the clock, one after so many requests
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began, took, n := time.Now(), time.Duration(0), 0
	for took < *window/2 {
		for range looks {
			n++
			send(n)
		}
		took = time.Since(began)
	}
	runtime.ReadMemStats(&after)
	return float64(took.Nanoseconds()) / float64(n), float64((after.Mallocs - before.Mallocs) / uint64(n))
}

// rewound is a body that can be sent again without an allocation.
type rewound struct{ strings.Reader }

func (*rewound) Close() error { return nil }

// discard is a ResponseWriter that costs nothing itself.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header             { return d.header }
func (*discard) WriteHeader(int)                   {}
func (*discard) Write(p []byte) (int, error)       { return len(p), nil }
func (*discard) WriteString(s string) (int, error) { return len(s), nil }
