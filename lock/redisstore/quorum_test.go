package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/quorum"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// servers starts n of them, each behind a proxy.
func servers(t *testing.T, n int) (all []*redistest.Server, proxies []*respproxy.Proxy) {
	t.Helper()
	for range n {
		s := redistest.Start(t)
		all = append(all, s)
		proxies = append(proxies, respproxy.Start(t, s.Addr()))
	}
	return all, proxies
}

// quorumOf opens the nodes at urls as one process does.
func quorumOf(t *testing.T, nodeTimeout time.Duration, proxies []*respproxy.Proxy) *quorum.Store {
	t.Helper()
	var nodes []lock.Store
	for _, p := range proxies {
		// The quorum must give up before go-redis does.
		nodes = append(nodes, open(t, p.URL()+"?read_timeout="+(3*time.Second+nodeTimeout).String()))
	}
	return quorum.New(nodes, quorum.WithNodeTimeout(nodeTimeout))
}

// persistent claims again when several claims have shared the nodes among them, as a
// Locker does. On a busy machine, 64 at once take a while to find a winner.
type persistent struct{ *quorum.Store }

func (p persistent) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		e, err := p.Store.Claim(ctx, key, c)
		if !errors.Is(err, lock.ErrNotApplied) || errors.Is(err, errors.ErrUnsupported) || ctx.Err() != nil {
			return e, err
		}
		time.Sleep(time.Millisecond + rand.N(pause)) // the longer it takes, the fewer at once
	}
}

func lockerOf(t *testing.T, s lock.Store, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(s, append([]lock.Option{lock.WithBudget(10 * time.Second), lock.WithLease(time.Minute)}, opts...)...)
	t.Cleanup(func() { require.NoError(t, l.Close(timeout(t, 30*time.Second))) })
	return l
}

// patient is a node timeout that no busy machine reaches.
const patient = 20 * time.Second

func TestQuorumConformance(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			_, proxies := servers(t, n)
			q := persistent{quorumOf(t, patient, proxies)}
			latchtest.TestStore(t, shortest, func(*testing.T) lock.Store { return q })
		})
	}
}

// A minority of nodes that are cut off, have stopped or lose their replies does
// not keep a majority from its work, and has no entries when it is back.
func TestQuorumMinorityFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fail, heal func(t *testing.T, s *redistest.Server, p *respproxy.Proxy)
	}{
		"down": {
			func(_ *testing.T, _ *redistest.Server, p *respproxy.Proxy) { p.Down() },
			func(t *testing.T, _ *redistest.Server, p *respproxy.Proxy) { t.Helper(); p.Up(t) },
		},
		"stands still": {
			func(_ *testing.T, s *redistest.Server, _ *respproxy.Proxy) { s.Stop() },
			func(_ *testing.T, s *redistest.Server, _ *respproxy.Proxy) { s.Cont() },
		},
		"loses its replies": {
			func(_ *testing.T, _ *redistest.Server, p *respproxy.Proxy) { p.SwallowReplies(respproxy.Close) },
			func(_ *testing.T, _ *redistest.Server, p *respproxy.Proxy) { p.Clear() },
		},
		"never answers": {
			func(_ *testing.T, _ *redistest.Server, p *respproxy.Proxy) { p.SwallowReplies(respproxy.Hang) },
			func(_ *testing.T, _ *redistest.Server, p *respproxy.Proxy) { p.Clear() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, proxies := servers(t, 3)
			here := lockerOf(t, quorumOf(t, 2*time.Second, proxies))
			there := lockerOf(t, quorumOf(t, 2*time.Second, proxies))
			ctx := timeout(t, time.Minute)
			nothing := func(context.Context) error { return nil }
			require.NoError(t, here.Do(ctx, keyFor(t), nothing)) // there are connections to fail on
			requireNothingLeft(t, all)
			tt.fail(t, all[1], proxies[1])
			for range 3 {
				require.NoError(t, here.Do(ctx, keyFor(t), func(ctx context.Context) error {
					_, err := there.Acquire(ctx, keyFor(t))
					require.ErrorIs(t, err, lock.ErrHeld)
					return nil
				}))
				require.NoError(t, there.Do(ctx, keyFor(t), nothing))
			}
			tt.heal(t, all[1], proxies[1])
			require.NoError(t, here.Do(ctx, keyFor(t), nothing))
			requireNothingLeft(t, all)
		})
	}
}

// requireNothingLeft waits until no node has an entry that a call has left behind.
func requireNothingLeft(t *testing.T, all []*redistest.Server) {
	t.Helper()
	for i, s := range all {
		require.Eventually(t, func() bool { return len(s.Keys(t, "latch:lock:*")) == 0 },
			40*time.Second, 20*time.Millisecond, "something is left on node %d", i)
	}
}

func TestQuorumCheck(t *testing.T) {
	t.Parallel()
	all, proxies := servers(t, 3)
	ctx := timeout(t, time.Minute)
	q := quorumOf(t, patient, proxies)
	require.NoError(t, q.Check(ctx))

	node := func(i int) lock.Store { return open(t, all[i].URL()) }
	// Two addresses of one server.
	err := quorum.New([]lock.Store{node(0), node(1), open(t, proxies[0].URL())}, quorum.WithNodeTimeout(patient)).Check(ctx)
	require.ErrorContains(t, err, "stores[0] and stores[2] are one server")
	require.ErrorContains(t, err, "give every node a server of its own")

	cluster := redistest.StartCluster(t, 3, nil)
	err = quorum.New([]lock.Store{node(0), node(1), redisstore.New(cluster.Client(t))}, quorum.WithNodeTimeout(patient)).Check(ctx)
	require.ErrorContains(t, err, "stores[2] writes to 3 servers, as a Cluster does")
	var masters []lock.Store
	for _, s := range cluster.Nodes {
		masters = append(masters, overClient(t, s.Addr(), nil))
	}
	err = quorum.New(masters, quorum.WithNodeTimeout(patient)).Check(ctx)
	require.ErrorContains(t, err, "stores[0]: redisstore: MOVED: the server is part of a Cluster")

	var locked []lock.Store
	for range 2 {
		locked = append(locked, overClient(t, redistest.Start(t, "--requirepass", "x").Addr(), nil))
	}
	err = quorum.New(append(locked, node(0)), quorum.WithNodeTimeout(patient)).Check(ctx)
	require.ErrorContains(t, err, "1 of 3 nodes are well, 2 have to be; stores[0]: redisstore: NOAUTH: ")
	require.ErrorContains(t, err, "set it in the client's options or the URL")

	// A quorum bears a minority that is down.
	proxies[2].Down()
	require.NoError(t, q.Check(ctx))
	proxies[1].Down()
	for err = q.Check(ctx); err != nil && strings.Contains(err.Error(), "stores[1]: redisstore: connection: "); {
		err = q.Check(ctx) // a pooled connection ended under the first
	}
	require.ErrorContains(t, err, "stores[1]: redisstore: dial: ")
	require.ErrorContains(t, err, "stores[2]: redisstore: dial: ")
	proxies[1].Up(t)
	proxies[2].Up(t)
}

func TestServers(t *testing.T) {
	t.Parallel()
	ctx := timeout(t, time.Minute)
	server := redistest.Shared(t)
	ids, err := open(t, server.URL()).Servers(ctx)
	require.NoError(t, err)
	require.Len(t, ids, 1)
	require.Len(t, ids[0], 40)
	again, err := overClient(t, server.Addr(), nil).Servers(ctx)
	require.NoError(t, err)
	require.Equal(t, ids, again)
	_, err = overClient(t, "127.0.0.1:1", nil).Servers(ctx)
	require.ErrorIs(t, err, lock.ErrNotApplied)
}
