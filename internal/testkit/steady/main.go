// Command steady serves one order behind a guard after many of its like, and writes what was
// executed for it to the directory GOCOVERDIR. scripts/steady builds and reads it.
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/coverage"
	"strconv"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves with the store at a URL, "" is memory.
func run(guard, url string) error {
	var store lock.Store = memstore.New()
	if url != "" {
		s, err := redisstore.Open(context.Background(), url)
		if err != nil {
			return err
		}
		store = s
	}
	l := lock.New(store)
	shop := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	var orders http.Handler
	switch guard {
	case "Lock":
		orders = latch.Lock(l, "user", keyfunc.Header("X-User-ID"))(shop)
	case "Idempotent":
		orders = latch.Idempotent(l, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)(shop)
	default:
		return fmt.Errorf("steady: no guard %q: Lock or Idempotent", guard)
	}
	order := func(n int) {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/orders", http.NoBody)
		r.Header.Set("X-User-Id", strconv.Itoa(n))
		r.Header.Set("Idempotency-Key", fmt.Sprintf("order-%026d", n))
		w := httptest.NewRecorder()
		if orders.ServeHTTP(w, r); w.Code != http.StatusCreated {
			panic(fmt.Sprintf("order %d: %d %s", n, w.Code, w.Body))
		}
	}
	for n := range 100 {
		order(n)
	}
	time.Sleep(time.Second) // what the orders have left to do in the background
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	order(100)
	return coverage.WriteCountersDir(os.Getenv("GOCOVERDIR"))
}
