//go:build unix

package main_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// backend is servers that desks share, with a proxy before each that takes
// orders.
type backend struct {
	args    []string // that make a desk use it, through the proxies
	proxies []*respproxy.Proxy
	keys    func() []string // of all servers
}

// topologies are the ways to run more than one Redis.
var topologies = []struct {
	name  string
	start func(t *testing.T) backend
}{
	{"quorum of 3", func(t *testing.T) backend { t.Helper(); return startQuorum(t, 3) }},
	{"quorum of 5", func(t *testing.T) backend { t.Helper(); return startQuorum(t, 5) }},
	{"cluster", startCluster},
	{"sentinel", startSentinel},
}

func startQuorum(t *testing.T, n int) backend {
	t.Helper()
	servers := make([]*redistest.Server, n)
	var b backend
	for i := range servers {
		servers[i] = redistest.Start(t)
		proxy := respproxy.Start(t, servers[i].Addr())
		b.proxies, b.args = append(b.proxies, proxy), append(b.args, "-redis", proxy.URL())
	}
	b.keys = func() (keys []string) {
		for _, s := range servers {
			keys = append(keys, s.Keys(t, "*")...)
		}
		return keys
	}
	return b
}

func startCluster(t *testing.T) backend {
	t.Helper()
	var b backend
	cluster := redistest.StartCluster(t, 3, func(_ int, addr string) int {
		proxy := respproxy.Start(t, addr)
		b.proxies = append(b.proxies, proxy)
		return proxy.Port()
	})
	cluster.AddReplicas(t)
	b.args, b.keys = []string{"-redis", cluster.URL()}, func() []string { return cluster.Keys(t, "*") }
	return b
}

// startSentinel has the Sentinels know the master a second time, by the address
// of a proxy. They never agree that this one is down.
func startSentinel(t *testing.T) backend {
	t.Helper()
	watched := redistest.StartSentinel(t, 1)
	master := watched.Pairs[0].Master
	proxy := respproxy.Start(t, master.Addr())
	for _, addr := range watched.Addrs() {
		sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr})
		require.NoError(t, sentinel.Monitor(t.Context(), "desk", "127.0.0.1", fmt.Sprint(proxy.Port()), "9").Err())
		require.NoError(t, sentinel.Close())
	}
	return backend{
		args:    []string{"-redis", "redis-sentinel://" + strings.Join(watched.Addrs(), ",") + "/desk"},
		proxies: []*respproxy.Proxy{proxy},
		keys:    func() []string { return master.Keys(t, "*") },
	}
}

func onEveryTopology(t *testing.T, test func(t *testing.T, b backend)) {
	t.Helper()
	t.Parallel()
	for _, topology := range topologies {
		t.Run(topology.name, func(t *testing.T) {
			t.Parallel()
			test(t, topology.start(t))
		})
	}
}

func TestStormOnTopologies(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts a Cluster, Sentinels and a quorum")
	onEveryTopology(t, func(t *testing.T, b backend) {
		t.Helper()
		args := slices.Concat(b.args, []string{"-budget", "10s"}) // 50 orders at once on every server, all on one machine
		requireOnce(t, []*process{startProcess(t, args...), startProcess(t, args...)})
	})
}

func TestKilledProcessOnTopologies(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts a Cluster, Sentinels and a quorum")
	onEveryTopology(t, func(t *testing.T, b backend) {
		t.Helper()
		requireOneLeaseAfterDeath(t, b.keys, b.args...)
	})
}

// TestIncidentOnTopologies loses replies as the founding incident did, on all
// servers at once. The user can order again at once when they arrive again.
func TestIncidentOnTopologies(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts a Cluster, Sentinels and a quorum")
	const claims, releases = "set", "eval|evalsha|del"
	losses := []struct {
		name     string
		commands string
		count    int // on each server; 0 for all
	}{
		{"one-claim", claims, 1},
		{"all-claims", claims, 0},
		{"one-release", releases, 1},
		{"all-releases", releases, 0},
		{"all-of-both", claims + "|" + releases, 0},
	}
	ends := map[string]respproxy.End{"close": respproxy.Close, "reset": respproxy.Reset, "hang": respproxy.Hang}
	onEveryTopology(t, func(t *testing.T, b backend) {
		t.Helper()
		d := startProcess(t, b.args...)
		for _, l := range losses {
			for end, how := range ends {
				user := l.name + "-" + end
				require.Equal(t, http.StatusCreated, d.served(user, "X-Work", "20ms").status, user)
				for _, p := range b.proxies {
					p.On(respproxy.Match{Name: l.commands, Key: user, Count: l.count}, respproxy.Swallow(how))
				}
				began := time.Now()
				met := d.order(user, "X-Work", "20ms")
				require.Less(t, time.Since(began), 6*time.Second, user) // two budgets, and what a busy machine adds
				require.Contains(t, []int{http.StatusCreated, http.StatusServiceUnavailable}, met.status, user+met.body)
				for _, p := range b.proxies {
					p.Clear()
				}
				require.Eventually(t, func() bool {
					got := d.order(user, "X-Work", "0s")
					require.NotEqual(t, http.StatusConflict, got.status, "%s: locked out: %s", user, got.body)
					return got.status == http.StatusCreated
				}, 10*time.Second, 10*time.Millisecond, user)
			}
		}
		require.Eventually(t, func() bool { return len(b.keys()) == 0 }, 40*time.Second, 10*time.Millisecond, "keys left at rest")
	})
}

// TestQuorumWithoutSomeNodes: a minority that is down is not missed, not even by
// a desk that starts, and a majority that is down refuses orders.
func TestQuorumWithoutSomeNodes(t *testing.T) {
	t.Parallel()
	var args []string
	servers := make([]*redistest.Server, 3)
	for i := range servers {
		servers[i] = redistest.Start(t)
		args = append(args, "-redis", servers[i].URL())
	}
	servers[1].Kill()
	patient := slices.Concat(args, []string{"-budget", "10s"})
	requireOnce(t, []*process{startProcess(t, patient...), startProcess(t, patient...)})
	d := startProcess(t, args...)
	require.Eventually(t, func() bool { return d.do("GET", "/readyz", "").status == http.StatusOK }, 10*time.Second, 10*time.Millisecond)

	servers[2].Stop()
	requireProblem(t, http.StatusServiceUnavailable, d.order("43"))
	requireProblem(t, http.StatusServiceUnavailable, d.do("GET", "/readyz", ""))
	require.Empty(t, d.orders("43"))

	servers[2].Cont()
	servers[1].Restart(t)
	require.Equal(t, http.StatusCreated, d.served("43").status)
}

// TestQuorumKeepsNoAnswers: what asks for a replay is refused before anything is
// done, with what to do; a cool-down is kept.
func TestQuorumKeepsNoAnswers(t *testing.T) {
	t.Parallel()
	b := startQuorum(t, 3)
	d := startProcess(t, append(b.args, "-budget", "10s", "-cooldown", "1h")...)
	got := d.order("42", "Idempotency-Key", "k")
	requireProblem(t, http.StatusNotImplemented, got)
	require.Contains(t, got.body, "Start it with one -redis")
	require.Empty(t, d.orders("42"))

	require.Equal(t, http.StatusCreated, d.order("42").status)
	requireProblem(t, http.StatusTooManyRequests, d.order("42"))
	requireProblem(t, http.StatusNotImplemented, d.pay(d.orders("42")[0].ID))

	requireProblem(t, http.StatusNotImplemented, d.tryForm(nil, "guard", "idempotent", "user", "43"))
	require.Contains(t, d.do("GET", "/", "").body, `id="double-ours" data-guard="lock"`, "the page plays the guard that there is")
	requireProblem(t, http.StatusNotImplemented, d.tryForm(nil, "guard", "both", "user", "43"))
	require.Less(t, d.tryForm(nil, "guard", "lock", "user", "43").status, 400)
}
