package middleware_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var chainFaults = flag.Int("chain.faults", 500, "how many faults meet the orders that cross a chain of services; 10000 in the report")

// chain is three services with a guard each, and a provider, and all faults between and in them.
type chain struct {
	call   func(context.Context) context.Context // of a handler, to the next service
	random *rand.Rand
	faults int
	ends   []*lock.Locker

	mu   sync.Mutex
	done map[string]map[string]bool // effects: the ids, by service and order
}

// strikes decides whether the next fault happens.
func (c *chain) strikes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.random.IntN(10) > 0 {
		return false
	}
	c.faults++
	return true
}

func (c *chain) effect(service, order, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := service + " " + order
	if c.done[at] == nil {
		c.done[at] = map[string]bool{}
	}
	c.done[at][id] = true
}

// site is a service: one process after the other, over one store.
type site struct {
	*chain

	name   string
	next   *http.Client
	memory *memstore.Store
	now    http.Handler // of the living process
}

// start starts a process.
func (s *site) start() {
	store := &mortalStore{Store: s.memory}
	locker := lock.New(store, lock.WithRerunAbandoned(), lock.WithLogger(quiet))
	s.ends = append(s.ends, locker)
	guard := latch.Idempotent(locker, keyfunc.Global, keyfunc.IdempotencyKey, latch.WithKeySecret([]byte("the secret of "+s.name)))
	s.now = guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, store) }))
}

// killed ends the process of store, and starts another one.
func (s *site) killed(store *mortalStore) {
	if s.strikes() {
		store.Dead.Store(true)
		s.start()
		panic(http.ErrAbortHandler)
	}
}

func (s *site) serve(w http.ResponseWriter, r *http.Request, store *mortalStore) {
	order, _ := io.ReadAll(r.Body)
	s.killed(store)
	id, _ := latch.Key(r.Context())
	s.effect(s.name, string(order), id)
	s.killed(store)
	req, err := http.NewRequestWithContext(s.call(r.Context()), http.MethodPost, "http://next.example/", strings.NewReader(string(order)))
	status := http.StatusBadGateway
	if err == nil {
		if resp, err := s.next.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusCreated {
				status = http.StatusCreated
			}
		}
	}
	w.WriteHeader(status)
	s.killed(store)
}

var errLost = errors.New("connection reset by peer")

// way is a network to a service, which loses requests and answers.
type way struct {
	*chain

	to func(w http.ResponseWriter, r *http.Request)
}

func (y *way) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil || y.strikes() {
		return nil, errLost
	}
	received := httptest.NewRequestWithContext(context.Background(), r.Method, "/", strings.NewReader(string(body)))
	for name, values := range r.Header {
		received.Header.Set(name, values[0])
	}
	w, broken := httptest.NewRecorder(), true
	func() {
		defer func() { _ = recover() }() // as net/http, for a process that was killed
		y.to(w, received)
		broken = false
	}()
	if broken || y.strikes() {
		return nil, errLost
	}
	return w.Result(), nil
}

// order sends orders until there were as many faults as faults says, and returns the number of
// orders, and of orders with more than one effect in a service.
func (c *chain) order(t *testing.T, faults int) (orders, doubled int) {
	t.Helper()
	names := []string{"provider", "ledger", "billing", "shop"}
	to := func(w http.ResponseWriter, r *http.Request) {
		order, _ := io.ReadAll(r.Body)
		c.effect("provider", string(order), r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusCreated)
	}
	for _, name := range names[1:] {
		s := &site{chain: c, name: name, next: &http.Client{Transport: client.Transport(&way{c, to})}, memory: memstore.New()}
		s.start()
		to = func(w http.ResponseWriter, r *http.Request) { s.now.ServeHTTP(w, r) }
	}
	customer := &http.Client{Transport: client.Transport(&way{c, to}, client.WithAttempts(1000), client.WithMaxWait(24*time.Hour), client.WithBudget(1000, 1000))}
	for ; c.faults < faults; orders++ {
		order := fmt.Sprint("order-", orders)
		resp, err := customer.Post("http://shop.example/", "text/plain", strings.NewReader(order))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 201, resp.StatusCode)
		for _, name := range names {
			n := len(c.done[name+" "+order])
			require.NotZero(t, n, "an order that was answered has reached "+name)
			if n > 1 {
				doubled++
				break
			}
		}
	}
	for _, l := range c.ends {
		end(l)
	}
	time.Sleep(25 * time.Hour) // the dead processes give up their clean-up
	return orders, doubled
}

// chains plays chains with the given number of faults in all, each in virtual time.
func chains(t *testing.T, faults int, call func(context.Context) context.Context) (orders, doubled int) {
	t.Helper()
	const each = 100
	for seed := range uint64(faults / each) {
		synctest.Test(t, func(t *testing.T) {
			c := &chain{call: call, random: rand.New(rand.NewPCG(seed, 1)), done: map[string]map[string]bool{}}
			o, d := c.order(t, each)
			orders, doubled = orders+o, doubled+d
		})
	}
	return orders, doubled
}

// TestChainOfStepsUnderFaults: requests and answers are lost on each way, and processes are
// killed before, between and after their effects. Each order has one effect in each service.
func TestChainOfStepsUnderFaults(t *testing.T) {
	t.Parallel()
	orders, doubled := chains(t, *chainFaults, func(ctx context.Context) context.Context { return client.Step(ctx, "next") })
	require.Zero(t, doubled)
	t.Logf("%d orders, %d faults, one effect of each order in each of four services", orders, *chainFaults)
}

// TestChainOfNewKeysUnderFaults is the twin: handlers that make a new key for each call.
func TestChainOfNewKeysUnderFaults(t *testing.T) {
	t.Parallel()
	var n int
	orders, doubled := chains(t, 200, func(ctx context.Context) context.Context {
		n++
		return client.WithKey(ctx, fmt.Sprint("new-", n))
	})
	t.Logf("%d of %d orders doubled", doubled, orders)
	require.Greater(t, doubled, orders/20)
}
