package client_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var chainEvery = flag.Int("chain.every", 7, "cut a chain of services at each byte that this divides; 1 is all")

// effects counts the orders that the services of a chain have carried out.
type effects struct {
	mu   sync.Mutex
	done map[string]map[string]bool
}

// add notes an effect. A second one with the same id is the same: a row with this primary key.
func (e *effects) add(service, order, id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := service + " " + order
	if e.done == nil {
		e.done = map[string]map[string]bool{}
	}
	if e.done[at] == nil {
		e.done[at] = map[string]bool{}
	}
	e.done[at][id] = true
}

// of returns how many effects the order had in each of the services.
func (e *effects) of(order string, services ...string) (n []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range services {
		n = append(n, len(e.done[s+" "+order]))
	}
	return n
}

var chainNames = []string{"shop", "billing", "ledger", "provider"}

// stripeLike is the provider: it charges once for each key, for all callers.
func stripeLike(e *effects) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "half a request", http.StatusBadRequest)
			return
		}
		e.add("provider", string(order), r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusCreated)
	})
}

// service is the handler of a service in the chain: it has a row for the order, and passes it on.
func service(name string, e *effects, c *http.Client, next string, call func(context.Context) context.Context) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "half a request", http.StatusBadRequest)
			return
		}
		id, _ := latch.Key(r.Context())
		e.add(name, string(order), id)
		req, err := http.NewRequestWithContext(call(r.Context()), http.MethodPost, next, strings.NewReader(string(order)))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		resp, err := c.Do(req)
		if err != nil || resp.StatusCode != http.StatusCreated {
			if err == nil {
				resp.Body.Close()
			}
			http.Error(w, "the next service failed", http.StatusBadGateway)
			return
		}
		resp.Body.Close()
		w.WriteHeader(http.StatusCreated)
	})
}

// startChain starts shop, billing, ledger and provider, each behind a proxy, in the order in
// which a request meets them.
func startChain(t *testing.T, e *effects, call func(context.Context) context.Context) (hops []*cutproxy.Proxy) {
	t.Helper()
	// No repeats in between: a lost answer is lost to the customer, too.
	base := &http.Transport{DisableKeepAlives: true}
	c := &http.Client{Transport: client.Transport(base, client.WithAttempts(1)), Timeout: time.Minute}
	next := httptest.NewServer(stripeLike(e))
	t.Cleanup(next.Close)
	hops = []*cutproxy.Proxy{cutproxy.Start(t, next.URL)}
	for _, name := range []string{"ledger", "billing", "shop"} {
		locker := lock.New(memstore.New())
		guard := latch.Idempotent(locker, keyfunc.Global, keyfunc.IdempotencyKey, latch.WithKeySecret([]byte("the secret of "+name)))
		server := httptest.NewServer(guard(service(name, e, c, hops[0].URL(), call)))
		t.Cleanup(func() {
			server.Close()
			require.NoError(t, locker.Close(context.Background()))
		})
		hops = append([]*cutproxy.Proxy{cutproxy.Start(t, server.URL)}, hops...)
	}
	return hops
}

// cutChain orders once for each byte between any two services of a chain, with the connection
// about to be cut there. The customer repeats until it is answered. each gets the effects.
func cutChain(t *testing.T, call func(context.Context) context.Context, every int, each func(order string, effects []int)) (orders int) {
	t.Helper()
	var e effects
	hops := startChain(t, &e, call)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	customer := &http.Client{Transport: client.Transport(
		base, client.WithBudget(100, 100), client.WithAttempts(100), client.WithBackoff(time.Millisecond, 20*time.Millisecond),
	), Timeout: time.Minute}
	buy := func(order string) {
		resp, err := customer.Post(hops[0].URL(), "text/plain", strings.NewReader(order))
		require.NoError(t, err)
		require.Empty(t, bodyOf(t, resp))
		require.Equal(t, 201, resp.StatusCode)
		each(order, e.of(order, chainNames...))
		orders++
	}
	for h, hop := range hops {
		hop.Count()
		buy(fmt.Sprintf("order-%d-0-0000", h))
		request, response := hop.Counted()
		for dir, all := range map[cutproxy.Direction]int{cutproxy.Request: request, cutproxy.Response: response} {
			for n := 0; n < all; n += every {
				base.CloseIdleConnections()
				hop.Cut(dir, n)
				buy(fmt.Sprintf("order-%d-%d-%04d", h, dir+1, n))
			}
		}
	}
	return orders
}

// TestChainCutAtEachByte: a submission crosses three services with a guard each, and a provider.
// Wherever a connection breaks, the customer gets an answer, and each has one effect.
func TestChainCutAtEachByte(t *testing.T) {
	t.Parallel()
	orders := cutChain(t, func(ctx context.Context) context.Context { return client.Step(ctx, "next") }, *chainEvery, func(order string, effects []int) {
		require.Equal(t, []int{1, 1, 1, 1}, effects, order)
	})
	t.Logf("%d orders, one effect of each in each of %d services", orders, len(chainNames))
}

// TestChainOfNewKeysDoubles is the twin: each service makes a new key for its call.
func TestChainOfNewKeysDoubles(t *testing.T) {
	t.Parallel()
	doubled := 0
	orders := cutChain(t, func(ctx context.Context) context.Context { return client.WithKey(ctx, rand.Text()) }, 10, func(_ string, effects []int) {
		require.Equal(t, 1, effects[0], "the customer has one key")
		if effects[1] > 1 || effects[2] > 1 || effects[3] > 1 {
			doubled++
		}
	})
	t.Logf("%d of %d orders doubled", doubled, orders)
	require.Greater(t, doubled, orders/5)
}
