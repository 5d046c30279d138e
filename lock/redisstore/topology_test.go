package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// quotable is a password that URLs have to quote.
const quotable = "p@ss:w/rd#?%"

// try does a little of everything.
func try(t *testing.T, s *redisstore.Store) {
	t.Helper()
	for n := range 8 { // so that every master of a cluster is met
		key := fmt.Sprintf("%s&%d", keyFor(t), n)
		take(t, s, key, fenced("a"))
		require.Len(t, listed(t, s), n+1)
	}
	for n := range 8 {
		release(t, s, fmt.Sprintf("%s&%d", keyFor(t), n), "a")
	}
	require.NoError(t, s.Check(t.Context()))
}

// A rediss-cluster URL verifies certificates, unless it says otherwise.
func TestClusterOverTLS(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, func(_ int, addr string) int {
		tcp, err := net.ResolveTCPAddr("tcp", terminateTLS(t, addr))
		require.NoError(t, err)
		return tcp.Port
	}, "--requirepass", quotable)
	secure := strings.Replace(cluster.URL(), "redis", "rediss", 1)
	_, err := redisstore.Open(timeout(t, 3*patience), withLongTimeouts(secure))
	require.ErrorContains(t, err, "certificate")
	try(t, open(t, secure+"?skip_verify=true"))
}

// A node that was reset knows no master. Calls that ask it fail, and the listener asks again.
func TestClusterWithoutMasters(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Start(t, "--cluster-enabled", "yes").Addr())
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{p.Addr()}})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	s := notifying(t, client)
	_, stop := s.Watch(keyFor(t))
	defer stop()
	require.Eventually(t, func() bool { return p.Commands("cluster") > 1 }, patience, 5*time.Millisecond)
	for call, ask := range map[string]func() error{
		"Check":   func() error { return s.Check(t.Context()) },
		"Servers": func() error { _, err := s.Servers(t.Context()); return err },
		"List":    func() error { return inspections["List"](t.Context(), s) },
		"Page":    func() error { return inspections["Page"](t.Context(), s) },
	} {
		err := ask()
		require.ErrorContains(t, err, "no master", call)
		requireNotApplied(t, err, "CLUSTERDOWN")
	}
}

// sentinelOverTLS is the URL of a Sentinel that wants TLS, as the master that it knows does.
func sentinelOverTLS(t *testing.T, watched *redistest.Sentinel) string {
	t.Helper()
	addr := watched.Addrs()[0]
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr, Password: quotable})
	defer func() { require.NoError(t, sentinel.Close()) }()
	_, port, err := net.SplitHostPort(terminateTLS(t, watched.Pairs[0].Master.Addr()))
	require.NoError(t, err)
	const never = "9" // Sentinels that would have to miss it: to them, without TLS, it looks down
	require.NoError(t, sentinel.Monitor(t.Context(), "tls", "127.0.0.1", port, never).Err())
	password := url.QueryEscape(quotable)
	return "rediss-sentinel://:" + password + "@" + terminateTLS(t, addr) + "/tls?skip_verify=true&sentinel_password=" + password
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
	client := redistest.Client(t, redistest.Shared(t))
	client.AddHook(hookOf{before: func() { t.Error("a hook") }})
	s := redisstore.New(client)
	take(t, s, keyFor(t), claim("a"))
	require.NoError(t, s.Close())
	wrapper := passing{redistest.Client(t, redistest.Shared(t)), new(atomic.Int32)}
	take(t, redisstore.New(wrapper), keyFor(t), claim("a"))
	require.EqualValues(t, 1, wrapper.seen.Load())
}

// ownerAndOther returns the node of a Cluster that has an entry, and another one.
func ownerAndOther(t *testing.T, c *redistest.Cluster, name string) (owner, other *redistest.Server) {
	t.Helper()
	if owner = c.Owner(t, name); owner == c.Nodes[0] {
		return owner, c.Nodes[1]
	}
	return owner, c.Nodes[0]
}

// beginMove begins to move the slot of an entry.
func beginMove(t *testing.T, c *redistest.Cluster, name string, from, to *redistest.Server) {
	t.Helper()
	to.Do(t, "CLUSTER", "SETSLOT", c.Slot(t, name), "IMPORTING", from.Do(t, "CLUSTER", "MYID"))
	from.Do(t, "CLUSTER", "SETSLOT", c.Slot(t, name), "MIGRATING", to.Do(t, "CLUSTER", "MYID"))
}

// endMove ends the move of a slot.
func endMove(t *testing.T, c *redistest.Cluster, name string, from, to *redistest.Server) {
	t.Helper()
	slot, id := c.Slot(t, name), to.Do(t, "CLUSTER", "MYID")
	for _, node := range []*redistest.Server{to, from} {
		node.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", id)
	}
}

// Slots move while the client believes in the old map.
func TestMovedSlots(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, nil)
	o := &redis.Options{Addr: cluster.Addrs()[0]}
	throughTheClient(o)
	client := hookedClient(o, true, nil)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	for name, s := range map[string]*redisstore.Store{
		"New": redisstore.New(redistest.ClusterClient(t, cluster)), "Open": open(t, cluster.URL()), "sharing": sharing(t, open(t, cluster.URL())),
		"through the client": redisstore.New(client),
	} {
		for _, how := range []string{"ask", "moved"} {
			key := name + "-" + how
			take(t, s, "warm-"+key, claim("a"))
			from, to := ownerAndOther(t, cluster, entryName(key))
			beginMove(t, cluster, entryName(key), from, to)
			if how == "moved" {
				endMove(t, cluster, entryName(key), from, to)
			}
			take(t, s, key, claim("tok"))
			require.Contains(t, to.Keys(t), entryName(key))
			for op, call := range operations {
				require.NoError(t, call(timeout(t, patience), s, key), op)
			}
		}
	}
}

// A caller leaves while the client follows a slot that has moved, and still reads the command.
func TestCallerThatLeavesAMovedCommand(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, nil)
	s := redisstore.New(redistest.ClusterClient(t, cluster))
	for i := range 5 {
		key := fmt.Sprint("moved-", i)
		take(t, s, "warm-"+key, claim("a"))
		from, to := ownerAndOther(t, cluster, entryName(key))
		beginMove(t, cluster, entryName(key), from, to)
		endMove(t, cluster, entryName(key), from, to)
		to.Do(t, "CLIENT", "PAUSE", patience.Milliseconds(), "WRITE")
		_, err := s.Claim(timeout(t, 100*time.Millisecond), key, claim("tok"))
		require.Error(t, err)
		to.Do(t, "CLIENT", "UNPAUSE")
		take(t, s, key+"-other", claim("tok"))
		require.Eventually(t, func() bool { return slices.Contains(to.Keys(t), entryName(key)) }, patience, time.Millisecond)
	}
}

// Once a server refuses what only a master with the slot executes, no command goes to it. At a former master, which
// still has the data of before, a receipt would find no entry.
func TestServerThatIsNoMasterAnyMore(t *testing.T) {
	t.Parallel()
	virtual := func(at func() string) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, at())
		}})
	}
	mapped := func(at func() string) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{
			ClusterStateReloadInterval: time.Hour,
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: at()}}}}, nil
			},
		})
	}
	single := func(t *testing.T) *redistest.Server { return redistest.Start(t) }
	demote := func(t *testing.T, s *redistest.Server) { s.Do(t, "REPLICAOF", "127.0.0.1", "1") }
	for name, tt := range map[string]struct {
		client func(at func() string) redis.UniversalClient
		start  func(t *testing.T) *redistest.Server
		end    func(t *testing.T, s *redistest.Server)
	}{
		"READONLY, behind one address": {virtual, single, demote},
		"READONLY, in a map":           {mapped, single, demote},
		"CLUSTERDOWN": {
			mapped, func(t *testing.T) *redistest.Server { return redistest.StartCluster(t, 1, nil).Nodes[0] },
			func(t *testing.T, s *redistest.Server) { s.Do(t, "FLUSHALL"); s.Do(t, "CLUSTER", "RESET") },
		},
		"LOADING": {mapped, func(t *testing.T) *redistest.Server { return redistest.Start(t, slowlyLoading...) }, loadSlowly},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			former, present := tt.start(t), redistest.Start(t)
			var at atomic.Value
			at.Store(former.Addr())
			client := tt.client(func() string { return at.Load().(string) })
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			s := redisstore.New(client)
			take(t, s, keyFor(t)+"&2", whole("a"))
			must.Yes(t)(s.Settle(t.Context(), keyFor(t)+"&2", lock.Claim{Token: "a"}, large, time.Hour)) // so that its connection is there
			tt.end(t, former)
			gets := func(want string) func() bool {
				return func() bool {
					_, err := s.Claim(timeout(t, patience), keyFor(t), claim("a"))
					return class(err) == want
				}
			}
			require.Eventually(t, gets(strings.Split(name, ",")[0]), patience, time.Millisecond)
			at.Store(present.Addr())
			require.Eventually(t, gets(""), patience, time.Millisecond)
			require.True(t, settled(t, s, "a"))
		})
	}
}
