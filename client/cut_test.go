package client_test

import (
	"context"
	"crypto/rand"
	"errors"
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
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// shop is a server that places an order for each run of its handler. A request without a key is not guarded.
type shop struct {
	*httptest.Server
	mu     sync.Mutex
	orders map[string]int // by the order's text
}

func startShop(t *testing.T) *shop {
	t.Helper()
	locker := lock.New(memstore.New())
	s := &shop{orders: map[string]int{}}
	once := latch.Idempotent(locker, keyfunc.Global, keyfunc.Optional(keyfunc.IdempotencyKey))
	s.Server = httptest.NewServer(once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		order := r.URL.RawQuery + string(body)
		s.mu.Lock()
		s.orders[order]++
		n := s.orders[order]
		s.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "%s, run %d", order, n)
	})))
	t.Cleanup(func() {
		s.Close()
		require.NoError(t, locker.Close(context.Background()))
	})
	return s
}

func (s *shop) effects(order string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orders[order]
}

// intent is a way to send one order. Requests that differ in it are cut at each byte.
type intent struct {
	name   string
	reused bool // the connection was used before
	new    func(t *testing.T, url, order string) *http.Request
}

func intents() []intent {
	post := func(form func(url, order string) (string, io.Reader)) func(t *testing.T, url, order string) *http.Request {
		return func(t *testing.T, url, order string) *http.Request {
			t.Helper()
			url, body := form(url, order)
			return must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, url, body))(t)
		}
	}
	forms := map[string]func(t *testing.T, url, order string) *http.Request{
		"body with GetBody":      post(func(url, order string) (string, io.Reader) { return url, strings.NewReader(order) }),
		"body of unknown length": post(func(url, order string) (string, io.Reader) { return url, plainReader{strings.NewReader(order)} }),
		"no body":                post(func(url, order string) (string, io.Reader) { return url + "?" + order, nil }),
	}
	var all []intent
	for name, f := range forms {
		all = append(all, intent{name + ", new connection", false, f}, intent{name + ", reused connection", true, f})
	}
	return all
}

// Wherever the connection breaks, there is one effect, and the caller gets the answer of the run that had it.
func TestCutAtEachByte(t *testing.T) {
	t.Parallel()
	for _, in := range intents() {
		parallel.Run(t, in.name, func(t *testing.T) {
			s := startShop(t)
			cuts := 0
			cutEverywhere(t, s, in, func(t *testing.T, url, order string, c *http.Client) {
				t.Helper()
				resp := must.Get(c.Do(in.new(t, url, order)))(t)
				require.Equal(t, 201, resp.StatusCode)
				cuts += client.Attempts(resp) - 1
				require.Equal(t, order+", run 1", bodyOf(t, resp))
				require.Equal(t, 1, s.effects(order))
			}, func(base http.RoundTripper) http.RoundTripper {
				return client.Transport(base, client.WithBudget(1, 10), client.WithBackoff(time.Millisecond, time.Second))
			})
			t.Logf("%d attempts cut off, each answered in the end", cuts)
			require.Greater(t, cuts, 200, "that many attempts were cut off")
		})
	}
}

// TestCutDoubles is the twin: the same by hand and without a key has two effects wherever the answer is lost.
func TestCutDoubles(t *testing.T) {
	t.Parallel()
	for _, in := range intents() {
		parallel.Run(t, in.name, func(t *testing.T) {
			s := startShop(t)
			doubled := 0
			cutEverywhere(t, s, in, func(t *testing.T, url, order string, c *http.Client) {
				t.Helper()
				var err error
				for range 2 {
					var resp *http.Response
					if resp, err = c.Do(in.new(t, url, order)); err == nil {
						_, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					if err == nil {
						break
					}
				}
				require.NoError(t, err)
				if s.effects(order) == 2 {
					doubled++
				}
			}, func(base http.RoundTripper) http.RoundTripper { return base })
			t.Logf("%d orders doubled", doubled)
			require.Greater(t, doubled, 100, "so many of the answers' bytes")
		})
	}
}

// cutEverywhere measures one order, and calls do for each byte of its request and its
// response, with the connection about to be cut there.
func cutEverywhere(t *testing.T, s *shop, in intent, do func(t *testing.T, url, order string, c *http.Client), wrap func(http.RoundTripper) http.RoundTripper) {
	t.Helper()
	p := cutproxy.Start(t, s.URL)
	url := p.URL() + "/orders"
	base := wire(t)
	c := &http.Client{Transport: wrap(base), Timeout: time.Minute}
	p.Count()
	do(t, url, "order-000000", c)
	request, response := p.Counted()
	for dir, all := range map[cutproxy.Direction]int{cutproxy.Request: request, cutproxy.Response: response} {
		for n := range all {
			base.CloseIdleConnections()
			if in.reused {
				warmUp(t, &http.Client{Transport: base}, url)
			}
			p.Cut(dir, n)
			do(t, url, fmt.Sprintf("order-%d%05d", dir+1, n), c)
		}
	}
}

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

// service is the handler of a service in the chain: it has a row for the order, and passes it on. The
// last one, the provider, passes it to no other.
func service(name string, e *effects, pass func(ctx context.Context, order string) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "half a request", http.StatusBadRequest)
			return
		}
		e.add(name, string(order), r.Header.Get("Idempotency-Key"))
		if err := pass(r.Context(), string(order)); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
}

// startChain starts shop, billing, ledger and provider, each behind a proxy, in the order in which a request meets them.
func startChain(t *testing.T, e *effects, call func(context.Context) context.Context) (hops []*cutproxy.Proxy) {
	t.Helper()
	// No repeats in between: a lost answer is lost to the customer, too.
	base := &http.Transport{DisableKeepAlives: true}
	c := &http.Client{Transport: client.Transport(base, client.WithAttempts(1)), Timeout: time.Minute}
	passTo := func(next string) func(ctx context.Context, order string) error {
		return func(ctx context.Context, order string) error {
			req, err := http.NewRequestWithContext(call(ctx), http.MethodPost, next, strings.NewReader(order))
			if err != nil {
				return err
			}
			resp, err := c.Do(req)
			if err == nil && resp.StatusCode != http.StatusCreated {
				err = errors.New("the next service failed")
			}
			if resp != nil {
				resp.Body.Close()
			}
			return err
		}
	}
	provider := httptest.NewServer(service("provider", e, func(context.Context, string) error { return nil }))
	t.Cleanup(provider.Close)
	hops = []*cutproxy.Proxy{cutproxy.Start(t, provider.URL)}
	for _, name := range []string{"ledger", "billing", "shop"} {
		locker := lock.New(memstore.New())
		guard := latch.Idempotent(locker, keyfunc.Global, keyfunc.IdempotencyKey, latch.WithKeySecret([]byte("the secret of "+name)))
		server := httptest.NewServer(guard(service(name, e, passTo(hops[0].URL()))))
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
	base := wire(t)
	customer := &http.Client{Transport: client.Transport(
		base, client.WithBudget(100, 100), client.WithAttempts(100), client.WithBackoff(time.Millisecond, 20*time.Millisecond),
	), Timeout: time.Minute}
	buy := func(order string) {
		resp := must.Get(customer.Post(hops[0].URL(), "text/plain", strings.NewReader(order)))(t)
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
