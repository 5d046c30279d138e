package proxies_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestOrders: with the lines of docs/proxies.md, a proxy gives up waiting for a slow order and sends it to the other
// server. With a guard there is one order, and its answer arrives. The twin has no guard, and two orders.
func TestOrders(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts proxies")
	t.Parallel()
	for _, k := range []kind{nginx, haproxy} { // a client behind Caddy repeats by itself
		for guarded, want := range map[bool]int64{true: 1, false: 2} {
			t.Run(fmt.Sprintf("%s/guarded=%v", k.name, guarded), func(t *testing.T) {
				t.Parallel()
				var orders atomic.Int64
				store := memstore.New()
				serve := func() string {
					h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						if orders.Add(1) == 1 {
							time.Sleep(1500 * time.Millisecond) // longer than the proxy waits
						}
						w.WriteHeader(http.StatusCreated)
					}))
					if guarded {
						h = latch.Idempotent(lock.New(store), keyfunc.Global, keyfunc.IdempotencyKey)(h)
					}
					s := httptest.NewServer(h)
					t.Cleanup(s.Close)
					return s.Listener.Addr().String()
				}
				p := k.start(t, k.lines(t), serve(), serve())
				req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.addr()+"/orders", http.NoBody))(t)
				req.Header["idempotency-key"] = []string{"key"} // net/http would repeat it if it knew the header
				resp, err := newClient(t).Do(req)
				require.NoError(t, err)
				_ = resp.Body.Close()
				require.Equal(t, http.StatusCreated, resp.StatusCode)
				require.Equal(t, want, orders.Load())
			})
		}
	}
}
