package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

func lockerOf(t *testing.T, s lock.Store, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(s, append([]lock.Option{lock.WithBudget(10 * time.Second), lock.WithLease(time.Minute)}, opts...)...)
	t.Cleanup(func() { require.NoError(t, l.Close(timeout(t, 30*time.Second))) })
	return l
}

// patient is a node timeout that no busy machine reaches.
const patient = 20 * time.Second

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
	err = quorum.New([]lock.Store{node(0), node(1), redisstore.New(redistest.ClusterClient(t, cluster))}, quorum.WithNodeTimeout(patient)).Check(ctx)
	require.ErrorContains(t, err, "stores[2] writes to 3 servers, as a Cluster does")

	// A quorum bears a minority that is down.
	proxies[2].Down()
	require.NoError(t, q.Check(ctx))
}
