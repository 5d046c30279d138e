package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// The behaviour of go-redis' own autopipeliner in the same case.
func TestAutoPipelinerSendsWhatWasAbandoned(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick|testmain.NewerServers, "checks go-redis alone")
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	client := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: 3 * time.Second, MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	pipeliner, err := client.AsyncAutoPipelineWithOptions(&redis.AutoPipelineOptions{MaxConcurrentBatches: 1})
	require.NoError(t, err)
	require.NoError(t, pipeliner.Ping(t.Context()).Err())
	p.On(respproxy.Match{Name: "set", Count: 1}, respproxy.Drop(respproxy.Hang)) // one connection dies, silently
	stalls := pipeliner.SetNX(t.Context(), keyFor(t)+"&stalls", "tok", time.Minute)
	require.Eventually(t, func() bool { return p.Commands("set") == 0 && pipeliner.Len() == 0 }, patience, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	abandoned := pipeliner.SetNX(ctx, keyFor(t), "tok", time.Minute)
	cancel()
	require.Empty(t, srv.Keys(t, keyFor(t)))
	require.Error(t, stalls.Err())
	_ = abandoned.Err()
	require.Len(t, srv.Keys(t, keyFor(t)), 1, "seconds after its caller has gone")
}

// member returns the i-th of several keys of a test.
func member(t *testing.T, i int) string {
	t.Helper()
	return fmt.Sprintf("%s&%d", keyFor(t), i)
}

// One dead connection and a hundred lockers: all get their lease. The lockers
// whose first try used the connection get it by a second try.
func TestDeadConnectionUnderLockers(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for a dead connection")
	t.Parallel()
	srv := redistest.Start(t)
	p := respproxy.Start(t, srv.Addr())
	s := open(t, p.URL())
	l := lock.New(s, lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(patience), lock.WithLease(3*patience))
	dead := p.On(respproxy.Match{Name: "set", Count: 1}, respproxy.Drop(respproxy.Hang))
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			e, err := l.Acquire(t.Context(), member(t, i))
			if err != nil {
				t.Error(err)
				return
			}
			if err := e.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	dead.Wait(t, 1)
	require.NoError(t, l.Close(timeout(t, 3*patience))) // the dead connection is given up after a budget and a read timeout
	require.Empty(t, srv.Keys(t))
}

// A node of a Cluster does not answer. Callers of the other node do not wait for it.
func TestStalledNodeOfACluster(t *testing.T) {
	t.Parallel()
	var proxies []*respproxy.Proxy
	cluster := redistest.StartCluster(t, 2, func(_ int, addr string) int {
		proxies = append(proxies, respproxy.Start(t, addr))
		return proxies[len(proxies)-1].Port()
	})
	s := redisstore.New(cluster.Client(t))
	nodes := make([][]string, 2) // keys by node
	for i := range 40 {
		key := member(t, i)
		take(t, s, key, claim("tok"))
		name := entryName(key)
		n := 0
		if cluster.Owner(t, name) == cluster.Nodes[1] {
			n = 1
		}
		nodes[n] = append(nodes[n], key)
	}
	proxies[0].Freeze()
	var frozen, others sync.WaitGroup
	for _, key := range nodes[0] {
		frozen.Go(func() {
			_, err := s.Claim(timeout(t, time.Second), key, claim("tok"))
			if err == nil {
				t.Error("answered by a node that is frozen")
			}
		})
	}
	for _, key := range nodes[1] {
		others.Go(func() {
			for range 5 {
				if _, err := s.Claim(timeout(t, 20*time.Second), key, claim("tok")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	others.Wait()
	frozen.Wait()
	proxies[0].Thaw()
}

// All callers of a server that does not answer come back, however many they are.
func TestBudgetsOfASilentServer(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for budgets in real time")
	t.Parallel()
	const callers, budget = 300, 300 * time.Millisecond
	srv := redistest.Start(t)
	p := respproxy.Start(t, srv.Addr())
	s := open(t, p.URL())
	l := lock.New(s, lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(budget))
	require.Eventually(t, func() bool { // there are connections and scripts
		return l.Do(t.Context(), keyFor(t), func(context.Context) error { return nil }) == nil
	}, patience, time.Millisecond)
	p.Freeze()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			began := time.Now()
			_, err := l.Acquire(t.Context(), member(t, i))
			if took := time.Since(began); !errors.Is(err, lock.ErrUnavailable) || took > budget+patience {
				t.Error(took, err)
			}
		})
	}
	all.Wait()
	p.Thaw()
	require.NoError(t, l.Close(timeout(t, 30*time.Second)))
	// A claim that lands after Close is gone after its first lease.
	require.Eventually(t, func() bool { return len(srv.Keys(t)) == 0 }, patience, 10*time.Millisecond)
}

// A server that does not answer gets no more connections than a store may have, for any number of
// callers.
func TestConnectionsToASilentServer(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for budgets in real time")
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	var made atomic.Int32
	s := overClient(t, p.Addr(), func(o *redis.Options) {
		o.ReadTimeout = 20 * time.Second
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			made.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	})
	take(t, s, keyFor(t), claim("tok"))
	p.Freeze()
	var certain atomic.Int32
	var calls sync.WaitGroup
	for i := range 500 {
		calls.Go(func() {
			_, err := s.Claim(timeout(t, 300*time.Millisecond), member(t, i), claim("tok"))
			if errors.Is(err, lock.ErrNotApplied) {
				certain.Add(1)
			}
		})
	}
	calls.Wait()
	const maxConnections, window = 16, 64
	require.LessOrEqual(t, made.Load(), int32(maxConnections))
	require.GreaterOrEqual(t, int(certain.Load()), 500-window-2, "the others were not sent")
	p.Thaw()
}
