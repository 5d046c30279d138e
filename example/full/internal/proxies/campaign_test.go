package proxies_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// street is the way of an order: a proxy, two servers behind it, and their store.
type street struct {
	t     *testing.T
	kind  kind
	rows  *redis.Client
	shops []*replica
}

func startStreet(t *testing.T, k kind, how guarding) *street {
	t.Helper()
	server := redistest.Start(t)
	s := &street{t: t, kind: k, rows: server.Client(t)}
	for range 2 {
		s.shops = append(s.shops, startReplica(t, server.URL(), how))
	}
	return s
}

// fault strikes while the orders of a wave are in flight.
type fault struct {
	name string

	// work is how long an order takes.
	work string

	// strike is called when both servers work on orders. It returns when all is
	// well again.
	strike func(s *street, way *way, wave int)
}

// way is a proxy and the lines before and behind it.
type way struct {
	proxy *proxy
	lines []*cutproxy.Proxy // if they are cut: of the clients, and of each server
}

func (w *way) url() string {
	if len(w.lines) > 0 {
		return w.lines[0].URL()
	}
	return "http://" + w.proxy.addr()
}

const short = "400ms"

var (
	kill = fault{"kill", short, func(s *street, _ *way, wave int) {
		victim := s.shops[wave%2]
		victim.Restart(s.t, victim.start)
	}}
	stop = fault{"stop", short, func(s *street, _ *way, wave int) {
		victim := s.shops[wave%2]
		victim.stop()
		victim.Restart(s.t, victim.start)
	}}
	reload = fault{"reload", short, func(_ *street, w *way, _ int) { w.proxy.reread() }}
	cut    = fault{"cut", short, func(s *street, w *way, wave int) {
		line := w.lines[wave%len(w.lines)]
		line.Down()
		require.NoError(s.t, line.Up())
	}}
	slow = fault{"slow", "2s", func(*street, *way, int) {}} // the proxy gives up after 1 s
)

// run has each client place one order a wave, and a fault strike each wave.
func (s *street) run(f fault, clients []sender, waves int) *row {
	s.t.Helper()
	w := s.open(f)
	r := &row{proxy: s.kind.name, fault: f}
	for n := range waves {
		var placing sync.WaitGroup
		for _, c := range clients {
			placing.Go(func() { s.place(r, c, w.url(), n) })
		}
		answered := make(chan struct{})
		go func() { placing.Wait(); close(answered) }()
		require.True(s.t, process.Eventually(func() bool {
			select {
			case <-answered: // before this machine has seen that both work
				return true
			default:
				return s.shops[0].works() && s.shops[1].works()
			}
		}), "the proxy sends no orders to one of the servers")
		f.strike(s, w, n)
		<-answered
	}
	return r
}

// open starts a proxy for a fault.
func (s *street) open(f fault) *way {
	s.t.Helper()
	addrs := []string{s.shops[0].addr, s.shops[1].addr}
	w := &way{}
	if f.name == cut.name {
		for i := range addrs {
			line := cutproxy.Start(s.t, addrs[i])
			w.lines, addrs[i] = append(w.lines, line), line.Addr()
		}
	}
	w.proxy = s.kind.start(s.t, s.kind.lines(s.t), addrs[0], addrs[1])
	if f.name == cut.name {
		w.lines = append([]*cutproxy.Proxy{cutproxy.Start(s.t, w.proxy.addr())}, w.lines...)
	}
	return w
}

// place places an order, and notes the last answer that the client shows.
func (s *street) place(r *row, c sender, url string, wave int) {
	key := fmt.Sprintf("%s-%s-%d-%s", s.kind.name, r.fault.name, wave, strings.Map(func(r rune) rune {
		if strings.ContainsRune(" ,", r) {
			return '-'
		}
		return r
	}, c.name))
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	req := request{url + "/orders", key, r.fault.work}
	r.note(intent{client: c.name, request: req, got: c.send(ctx, req)})
}

// count compares the last answers with the orders. It waits for those that no client waits for.
func (s *street) count(r *row) {
	s.t.Helper()
	require.True(s.t, process.Eventually(func() bool { return !s.shops[0].works() && !s.shops[1].works() }))
	for i := range r.intents {
		order := &r.intents[i]
		orders, err := s.rows.SCard(s.t.Context(), ordersOf(order.body())).Result()
		require.NoError(s.t, err)
		runs, err := s.rows.Get(s.t.Context(), runsOf(order.body())).Int()
		if !errors.Is(err, redis.Nil) {
			require.NoError(s.t, err)
		}
		order.orders, order.runs = int(orders), runs
	}
}

// TestProxies: whatever becomes of a server, of a connection or of the proxy, an order is placed
// once, and its client is not shown an order that does not exist. If the proxy gives up before
// the order is placed, or is reloaded, the last answer of each client is the order.
func TestProxies(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts proxies, servers and clients")
	t.Parallel()
	all := &table{}
	clients := senders(t)
	t.Run("behind", func(t *testing.T) {
		for _, k := range []kind{nginx, haproxy, caddy} {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				s := startStreet(t, k, guarded)
				var rows []*row
				for _, f := range []fault{kill, stop, reload, cut, slow} {
					rows = append(rows, s.run(f, clients, *intents))
				}
				for _, r := range rows {
					s.count(r)
					all.add(r)
					require.Zero(t, r.doubled(), "%v", r)
					require.Zero(t, r.invented(), "%v", r)
					require.Equal(t, r.fault.name == kill.name, r.again() > 0, "only the orders of a killed server run again: %v", r)
					if r.fault.name == slow.name || r.fault.name == reload.name {
						require.Empty(t, r.wrong(), "%v", r)
						require.Empty(t, r.refused(), "%v", r)
					}
				}
			})
		}
	})
	all.write(t)
}

// TestProxiesWithoutAGuard is a twin: orders that the proxy or the client repeats are doubled.
// Behind Caddy 2.6, it is the client.
func TestProxiesWithoutAGuard(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts proxies, servers and clients")
	t.Parallel()
	clients := senders(t)
	t.Run("behind", func(t *testing.T) {
		for _, k := range []kind{nginx, haproxy, caddy} {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				s := startStreet(t, k, unguarded)
				for _, f := range []fault{cut, slow} {
					r := s.run(f, clients, 1)
					s.count(r)
					t.Log(r)
					require.Positive(t, r.doubled(), "%v", r)
				}
			})
		}
	})
}

// TestProxiesWithoutAWait is a twin: a repeat that is refused at once is the last answer of a
// client whose order is placed.
func TestProxiesWithoutAWait(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts proxies, servers and clients")
	t.Parallel()
	clients := senders(t)
	t.Run("behind", func(t *testing.T) {
		for _, k := range []kind{nginx, haproxy} { // a client behind Caddy repeats later
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				s := startStreet(t, k, impatient)
				r := s.run(slow, clients, 1)
				s.count(r)
				t.Log(r)
				require.Zero(t, r.doubled(), "%v", r)
				require.NotEmpty(t, r.wrong(), "%v", r)
			})
		}
	})
}

// TestProxiesWithAStatusThatIsRepeated: a repeat that is refused at once with 503 is sent again
// by each client, until it has the order.
func TestProxiesWithAStatusThatIsRepeated(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts proxies, servers and clients")
	t.Parallel()
	clients := senders(t)
	t.Run("behind", func(t *testing.T) {
		for _, k := range []kind{nginx, haproxy} {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				s := startStreet(t, k, repeated)
				r := s.run(slow, clients, 1)
				s.count(r)
				t.Log(r)
				require.Zero(t, r.doubled(), "%v", r)
				require.Empty(t, r.wrong(), "%v", r)
				require.Empty(t, r.refused(), "%v", r)
			})
		}
	})
}
