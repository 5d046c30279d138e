package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/middleware/console"
	"github.com/httplatch/httplatch/middleware/internal/guardtest"
)

// BenchmarkPage is one page of many thousand keys: what an operator waits for.
func BenchmarkPage(b *testing.B) {
	for _, n := range []int{100, many, 100 * many} {
		store := memstore.New(memstore.WithLimits(200*many, 1<<30))
		for i := range n {
			if _, err := store.Claim(b.Context(), fmt.Sprint("user=", i), lock.Claim{Token: "t", Owner: "web-3:4711", Lease: time.Hour}); err != nil {
				b.Fatal(err)
			}
		}
		page := console.New(lock.New(store))
		for name, query := range map[string]string{"first page": "", "whole key": "q=user%3D42", "one key": "key=user%3D42"} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				r := httptest.NewRequest(http.MethodGet, "/console?"+query, nil)
				r.RemoteAddr = "127.0.0.1:1"
				r.Header.Set("Accept", "text/html")
				for b.Loop() {
					if w := guardtest.Serve(page, r); w.Code != http.StatusOK {
						b.Fatal(w.Code)
					}
				}
			})
		}
	}
}
