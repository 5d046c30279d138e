package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// BenchmarkGuard measures guards on the memory store: the difference to "bare" is the cost.
func BenchmarkGuard(b *testing.B) {
	const body, answer = `{"sku":"x","quantity":1}`, `{"id":"1","sku":"x","quantity":1}`
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, answer)
	})
	roomy := memstore.New(memstore.WithLimits(100_000_000, 64<<30)) // for all requests of one user
	keyed := latch.Idempotent(lock.New(roomy), byUser, keyfunc.Optional(keyfunc.IdempotencyKey))(bare)
	deduped := latch.Dedupe(lock.New(memstore.New()), byUser, time.Hour)(bare)
	sent := 0
	benchmarks := []struct {
		name   string
		method string
		h      http.Handler
		key    func() string
	}{
		{"bare", http.MethodPost, bare, func() string { return "k" }},
		{"lock", http.MethodPost, latch.Lock(lock.New(memstore.New()), "user", byUser)(bare), func() string { return "" }},
		{"first", http.MethodPost, keyed, func() string { sent++; return "k" + strconv.Itoa(sent) }},
		{"replay", http.MethodPost, keyed, func() string { return "k" }},
		{"dedupe replay", http.MethodPost, deduped, func() string { return "" }},
		{"no key", http.MethodPost, keyed, func() string { return "" }},
		{"GET", http.MethodGet, keyed, func() string { return "k" }},
	}
	for _, bm := range benchmarks {
		b.Run(bm.name, func(b *testing.B) {
			r := httptest.NewRequest(bm.method, "/orders", nil)
			r.ContentLength = int64(len(body))
			r.Header.Set("X-User-ID", "42")
			in := &rewound{}
			r.Body = in
			w := &discard{header: make(http.Header)}
			key := []string{"k"}
			bm.h.ServeHTTP(w, r)
			b.ReportAllocs()
			for b.Loop() {
				in.Reset(body)
				clear(w.header)
				if k := bm.key(); k != "" {
					key[0] = k
					r.Header["Idempotency-Key"] = key
				}
				bm.h.ServeHTTP(w, r)
			}
		})
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
