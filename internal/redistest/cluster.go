package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// Cluster is a Redis Cluster of masters that share all slots evenly.
type Cluster struct {
	Nodes []*Server // in slot order

	announced []int
}

// StartCluster starts a Redis Cluster of that many masters, without replicas,
// and returns when every node says that the cluster is up: after about two
// seconds, which a young node waits whatever its size. args are as for
// [Start].
//
// With announce a proxy can sit in front of each node: it is called with the
// node's number and its address, and returns the port of 127.0.0.1 that
// clients are to be told, by CLUSTER SLOTS and by redirections. The nodes
// themselves keep talking directly. nil announces the real ports.
func StartCluster(tb testing.TB, masters int, announce func(node int, addr string) (port int), args ...string) *Cluster {
	tb.Helper()
	if masters < 1 {
		tb.Fatal("redistest: a cluster needs a master")
	}
	c := &Cluster{}
	var buses []int
	for i := range masters {
		bus, err := FreePort()
		if err != nil {
			tb.Fatal(err)
		}
		s := Start(tb, append([]string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus),
			"--cluster-announce-ip", "127.0.0.1", "--cluster-announce-bus-port", strconv.Itoa(bus),
			"--cluster-node-timeout", "2000",
		}, args...)...)
		port := s.Port()
		if announce != nil {
			port = announce(i, s.Addr())
			s.Do(tb, "CONFIG", "SET", "cluster-announce-port", port)
			s.args = append(s.args, "--cluster-announce-port", strconv.Itoa(port)) // for Restart
		}
		c.Nodes, c.announced, buses = append(c.Nodes, s), append(c.announced, port), append(buses, bus)
	}
	for i, s := range c.Nodes {
		s.Do(tb, "CLUSTER", "ADDSLOTSRANGE", i*slots/masters, (i+1)*slots/masters-1)
		s.Do(tb, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i > 0 {
			s.Do(tb, "CLUSTER", "MEET", "127.0.0.1", c.Nodes[0].Port(), buses[0])
		}
	}
	c.await(tb)
	return c
}

// await returns when every node knows all others and serves all slots.
func (c *Cluster) await(tb testing.TB) {
	tb.Helper()
	deadline := time.Now().Add(startTimeout)
	for _, s := range c.Nodes {
		for !c.up(tb, s) {
			if time.Now().After(deadline) {
				tb.Fatalf("redistest: cluster is not up after %v:\n%v", startTimeout, s.Do(tb, "CLUSTER", "INFO"))
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func (c *Cluster) up(tb testing.TB, s *Server) bool {
	tb.Helper()
	info := fmt.Sprint(s.Do(tb, "CLUSTER", "INFO"))
	return strings.Contains(info, "cluster_state:ok") &&
		strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.Nodes))) &&
		strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r", slots)) &&
		c.tellsAnnounced(tb, s)
}

// tellsAnnounced: gossip about a node's ports can arrive after its slots.
func (c *Cluster) tellsAnnounced(tb testing.TB, s *Server) bool {
	tb.Helper()
	nodes := fmt.Sprint(s.Do(tb, "CLUSTER", "NODES"))
	for _, port := range c.announced {
		if !strings.Contains(nodes, fmt.Sprintf(" 127.0.0.1:%d@", port)) {
			return false
		}
	}
	return true
}

// Addrs are the announced addresses of the nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.announced))
	for i, port := range c.announced {
		addrs[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	return addrs
}

// URL is "redis-cluster://addr,addr".
func (c *Cluster) URL() string { return "redis-cluster://" + strings.Join(c.Addrs(), ",") }

// Client returns a go-redis cluster client with default options. It is closed
// when tb ends.
func (c *Cluster) Client(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Keys returns the keys of all nodes in order, as [Server.Keys] does.
func (c *Cluster) Keys(tb testing.TB, patterns ...string) []string {
	tb.Helper()
	var keys []string
	for _, s := range c.Nodes {
		keys = append(keys, s.Keys(tb, patterns...)...)
	}
	slices.Sort(keys)
	return keys
}

// Owner returns the node that holds the slot of key.
func (c *Cluster) Owner(tb testing.TB, key string) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	client := c.Nodes[0].adminClient()
	defer func() { _ = client.Close() }()
	slot, err := client.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		tb.Fatalf("redistest: slot of %q: %v", key, err)
	}
	for i := len(c.Nodes) - 1; i > 0; i-- {
		if int(slot) >= i*slots/len(c.Nodes) {
			return c.Nodes[i]
		}
	}
	return c.Nodes[0]
}
