package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// behindProxies are clients, whose read timeout is given, of a server behind a proxy.
var behindProxies = map[string]func(t *testing.T, read time.Duration) (*redisstore.Store, *respproxy.Proxy){
	"client": func(t *testing.T, read time.Duration) (*redisstore.Store, *respproxy.Proxy) {
		t.Helper()
		p := respproxy.Start(t, redistest.Start(t).Addr())
		return overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout = read }), p
	},
	"cluster client": func(t *testing.T, read time.Duration) (*redisstore.Store, *respproxy.Proxy) {
		t.Helper()
		var p *respproxy.Proxy
		cluster := redistest.StartCluster(t, 1, func(_ int, addr string) int {
			p = respproxy.Start(t, addr)
			return p.Port()
		})
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ReadTimeout: read})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		return redisstore.New(client), p
	},
}

// A server that does not answer for a while must not use up the pool of clients
// with default options, nor delay their users afterwards. (Except for the time
// after which the clients would give up by themselves.)
func TestCallsEndWithTheirContexts(t *testing.T) {
	t.Parallel()
	const obstacle = 30 * time.Second
	for name, start := range behindProxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := start(t, obstacle)
			key := keyFor(t)
			take(t, s, key, claim("tok"))
			p.Freeze()
			for name, op := range operations {
				began := time.Now()
				require.Error(t, op(timeout(t, 100*time.Millisecond), s, key), name)
				require.Less(t, time.Since(began), obstacle/3, name)
			}
			p.Thaw()
			take(t, s, key+"&2", claim("a"))
		})
	}
}

// passing is a client of another type, as libraries that trace and measure have.
type passing struct {
	redis.UniversalClient

	seen *atomic.Int32
}

func (w passing) Process(ctx context.Context, cmd redis.Cmder) error {
	w.seen.Add(1)
	return w.UniversalClient.Process(ctx, cmd)
}

// Hooks of a client do not see the commands of the store. A client of another type sees each once.
func TestWrappersSeeEveryCommandOnce(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	client.AddHook(hookOf{command: func() { t.Error("a hook") }, pipeline: func() { t.Error("a hook") }})
	s := redisstore.New(client)
	take(t, s, keyFor(t), claim("a"))
	require.NoError(t, s.Close())
	wrapper := passing{redistest.Shared(t).Client(t), new(atomic.Int32)}
	take(t, redisstore.New(wrapper), keyFor(t), claim("a"))
	require.EqualValues(t, 1, wrapper.seen.Load())
}

// Slots move while the client believes in the old map.
func TestMovedSlots(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, nil)
	id := func(node int) string {
		text, _ := cluster.Nodes[node].Do(t, "CLUSTER", "MYID").(string)
		return text
	}
	stores := map[string]*redisstore.Store{
		"New": redisstore.New(cluster.Client(t)), "Open": open(t, cluster.URL()),
		"sharing": sharing(t, open(t, cluster.URL())),
	}
	for i, client := range stores {
		take(t, client, "warm-"+i, claim("a"))
	}
	from := func(key string) int {
		name := entryName(key)
		if cluster.Owner(t, name) == cluster.Nodes[0] {
			return 0
		}
		return 1
	}
	for name, s := range stores {
		for _, how := range []string{"ask", "moved"} {
			key := fmt.Sprintf("%s-%s", name, how)
			take(t, s, "warm-"+key, claim("a"))
			redisName := entryName(key)
			slot := cluster.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", redisName)
			a := from(key)
			b := 1 - a
			cluster.Nodes[b].Do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(a))
			cluster.Nodes[a].Do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(b))
			if how == "moved" {
				for _, node := range []int{b, a} {
					cluster.Nodes[node].Do(t, "CLUSTER", "SETSLOT", slot, "NODE", id(b))
				}
			}
			take(t, s, key, claim("tok"))
			require.Contains(t, strings.Join(cluster.Nodes[b].Keys(t), " "), redisName)
			for op, call := range operations {
				require.NoError(t, call(timeout(t, patience), s, key), op)
			}
		}
	}
}

// A server that comes back is found again, by a client that repeats nothing.
func TestRestartedServer(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (*redistest.Server, *redisstore.Store){
		"client": func(t *testing.T) (*redistest.Server, *redisstore.Store) {
			srv := redistest.Start(t)
			return srv, redisstore.New(srv.Client(t))
		},
		"cluster client": func(t *testing.T) (*redistest.Server, *redisstore.Store) {
			cluster := redistest.StartCluster(t, 1, nil)
			return cluster.Nodes[0], redisstore.New(cluster.Client(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, s := start(t)
			take(t, s, "k", claim("a"))
			srv.Kill()
			_, err := s.Claim(timeout(t, time.Second), "k", claim("a"))
			require.Error(t, err)
			srv.Restart(t)
			require.Eventually(t, func() bool {
				_, err := s.Claim(timeout(t, time.Second), "k", claim("a"))
				return err == nil
			}, 10*time.Second, 20*time.Millisecond)
		})
	}
}

// When another node has taken over, the client must not go on asking the dead
// node until it reads the map again by itself, once a minute. The other slots of the dead node
// have no heir here, so the cluster must serve without them.
func TestFailedNodeOfACluster(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(*testing.T, *redistest.Cluster) *redisstore.Store{
		"New":  func(t *testing.T, c *redistest.Cluster) *redisstore.Store { return redisstore.New(c.Client(t)) },
		"Open": func(t *testing.T, c *redistest.Cluster) *redisstore.Store { return open(t, c.URL()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 3, nil, "--cluster-require-full-coverage", "no")
			s := store(t, cluster)
			redisName := entryName("k")
			failed := cluster.Owner(t, redisName)
			heir := cluster.Nodes[0]
			if heir == failed {
				heir = cluster.Nodes[1]
			}
			slot := heir.Do(t, "CLUSTER", "KEYSLOT", redisName)
			take(t, s, "k", claim("a"))
			failed.Kill()
			heir.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", heir.Do(t, "CLUSTER", "MYID"))
			heir.Do(t, "CLUSTER", "BUMPEPOCH")
			require.Eventually(t, func() bool {
				_, err := s.Claim(timeout(t, time.Second), "k", claim("b"))
				return err == nil
			}, 20*time.Second, 50*time.Millisecond)
		})
	}
}
