package policy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/internal/guardtest"
	"github.com/httplatch/httplatch/middleware/policy"
)

// BenchmarkGuard compares a guard of a file with a guard of code, on the memory store.
func BenchmarkGuard(b *testing.B) {
	fromFile := func(fields string) func(http.Handler) http.Handler {
		guards, err := policy.Load(strings.NewReader(`{"g": {`+fields+`}}`), lock.New(memstore.New()), offered)
		if err != nil {
			b.Fatal(err)
		}
		return guards.Get("g")
	}
	for _, bm := range []struct {
		name  string
		guard func(http.Handler) http.Handler
	}{
		{"lock in code", latch.Lock(lock.New(memstore.New()), "user", guardtest.ByUser)},
		{"lock from a file", fromFile(aLock)},
		{"replay in code", latch.Idempotent(lock.New(memstore.New()), guardtest.ByUser, keyfunc.IdempotencyKey)},
		{"replay from a file", fromFile(anIdempotent)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			h := bm.guard(http.HandlerFunc(guardtest.Created))
			w := httptest.NewRecorder()
			r := guardtest.KeyedBody("k", "")
			r.Body = http.NoBody
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
