package suite

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// InProcess is the part that shows what a guard on the memory store costs over
// its handler, without a network.
const InProcess = "in-process"

// OverBare is the case of InProcess: all figures are differences.
const OverBare = "over the bare handler"

// Contenders of InProcess.
const (
	GuardLock   = "Lock"
	GuardFirst  = "Idempotent, first"
	GuardReplay = "Idempotent, replay"
	PeerFirst   = "repenguin22/idemlease, first"
	PeerReplay  = "repenguin22/idemlease, replay"
)

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
		{GuardLock, empty, locks, same},
		{GuardFirst, answers, once, others},
		{GuardReplay, answers, once, same},
	}
	if guard := idemlease(); guard != nil {
		all = append(all, guarded{PeerFirst, answers, guard, others}, guarded{PeerReplay, answers, guard, same})
	}
	return all
}

func measureInProcess(ctx context.Context, b *bench) error {
	testing.Init()
	if err := flag.Set("test.benchtime", (b.Window / 2).String()); err != nil {
		return err
	}
	all := guards()
	return b.rounds(ctx, len(all), func(i int) error {
		g := all[i]
		order := []http.Handler{g.handler, g.guard()(g.handler)}
		var results [2]testing.BenchmarkResult
		err := b.shuffled(ctx, 2, func(i int) error {
			results[i] = testing.Benchmark(func(t *testing.B) { serveAgain(t, order[i], g.key) })
			if results[i].N == 0 {
				return fmt.Errorf("%s: the benchmark failed", g.who)
			}
			return nil
		})
		if err != nil {
			return err
		}
		b.add(OverBare, g.who, Nanos, nanos(results[1])-nanos(results[0]))
		b.add(OverBare, g.who, Allocs, float64(results[1].AllocsPerOp()-results[0].AllocsPerOp()))
		return nil
	})
}

func nanos(r testing.BenchmarkResult) float64 { return float64(r.T.Nanoseconds()) / float64(r.N) }

// serveAgain sends requests that cost nothing themselves.
func serveAgain(b *testing.B, h http.Handler, key func(n int) string) {
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
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		send(n)
	}
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
