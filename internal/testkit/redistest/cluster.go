package redistest

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const (
	slots   = 16384
	stateOK = "cluster_state:ok"
)

// Cluster is a Redis Cluster of masters that share all slots evenly.
type Cluster struct {
	Nodes    []*Server // the masters, in slot order
	Replicas []*Server // Replicas[i] is the replica of Nodes[i]; none without AddReplicas

	args      []string
	password  string
	announced []int // the ports of Nodes that clients get
	buses     []int // of Nodes
}

// StartCluster starts a Redis Cluster with the given number of masters and no
// replicas, and returns when every node says that the cluster is up. This takes
// about two seconds for any size, because a new node waits for so long. args
// are as for [Start].
//
// With announce, a proxy can be in front of each node. announce is called with
// the node's number and address, and returns the port of 127.0.0.1 that clients
// get from CLUSTER SLOTS and from redirections. The nodes themselves connect
// directly. nil announces the real ports.
//
// Nodes and Replicas keep the roles that the servers had at their start, even
// after a move or a promotion. [Cluster.Owner] and [Cluster.Masters] report the
// present roles.
func StartCluster(tb testing.TB, masters int, announce func(node int, addr string) (port int), args ...string) *Cluster {
	tb.Helper()
	if masters < 1 {
		tb.Fatal("redistest: a cluster needs a master")
	}
	testmain.SkipIn(tb, testmain.Quick, "starts a Cluster")
	c := &Cluster{args: args}
	c.password, _ = option(args, "--requirepass")
	for i := range masters {
		s, bus := c.startNode(tb)
		port := s.Port()
		if announce != nil {
			port = announce(i, s.Addr())
			s.Do(tb, "CONFIG", "SET", "cluster-announce-port", port)
			s.args = append(s.args, "--cluster-announce-port", strconv.Itoa(port)) // for Restart
		}
		c.Nodes, c.announced, c.buses = append(c.Nodes, s), append(c.announced, port), append(c.buses, bus)
	}
	for i, s := range c.Nodes {
		s.Do(tb, addSlots(i*slots/masters, (i+1)*slots/masters)...)
		s.Do(tb, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i > 0 {
			s.Do(tb, "CLUSTER", "MEET", "127.0.0.1", c.Nodes[0].Port(), c.buses[0])
		}
	}
	c.await(tb)
	return c
}

// startNode starts a server that is in no cluster yet.
func (c *Cluster) startNode(tb testing.TB) (s *Server, bus int) {
	tb.Helper()
	args := append([]string{
		"--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-node-timeout", "2000",
	}, c.args...)
	if before7(tb) { // the bus is 10,000 above the port, and a server whose bus is taken is started at another port
		s = Start(tb, args...)
		return s, s.port + 10000
	}
	bus, err := process.FreePort()
	if err != nil {
		tb.Fatal(err)
	}
	return Start(tb, append(args, "--cluster-port", strconv.Itoa(bus), "--cluster-announce-bus-port", strconv.Itoa(bus))...), bus
}

// addSlots returns CLUSTER ADDSLOTS for the slots from slot to end. Redis 7 accepts ranges, too.
func addSlots(slot, end int) []any {
	command := []any{"CLUSTER", "ADDSLOTS"}
	for ; slot < end; slot++ {
		command = append(command, slot)
	}
	return command
}

// await returns when every node knows all others and serves all slots.
func (c *Cluster) await(tb testing.TB) {
	tb.Helper()
	for _, s := range c.members() {
		c.eventually(tb, s, "is not up", func() bool { return c.up(tb, s) })
	}
}

// members returns all servers.
func (c *Cluster) members() []*Server { return slices.Concat(c.Nodes, c.Replicas) }

// eventually waits until s has the information that condition checks.
func (c *Cluster) eventually(tb testing.TB, s *Server, complaint string, condition func() bool) {
	tb.Helper()
	eventually(tb, condition, func() string {
		return fmt.Sprintf("cluster %s:\n%v%s", complaint, s.Do(tb, "CLUSTER", "INFO"), c.nodes(tb, s))
	})
}

// nodes returns the nodes that s knows.
func (c *Cluster) nodes(tb testing.TB, s *Server) string {
	tb.Helper()
	return fmt.Sprint(s.Do(tb, "CLUSTER", "NODES"))
}

// eventually polls until condition is met, or fails with a complaint.
func eventually(tb testing.TB, condition func() bool, complaint func() string) {
	tb.Helper()
	for deadline := time.Now().Add(process.Patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("redistest: after %v, %s", process.Patience, complaint())
		}
	}
}

func (c *Cluster) up(tb testing.TB, s *Server) bool {
	tb.Helper()
	info := fmt.Sprint(s.Do(tb, "CLUSTER", "INFO"))
	return strings.Contains(info, stateOK) &&
		strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.members()))) &&
		strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r", slots)) &&
		c.tellsAnnounced(tb, s)
}

// tellsAnnounced reports whether s knows all announced ports: gossip about a node's port can arrive
// after its slots.
func (c *Cluster) tellsAnnounced(tb testing.TB, s *Server) bool {
	tb.Helper()
	nodes := c.nodes(tb, s)
	for _, port := range c.announced {
		if !strings.Contains(nodes, fmt.Sprintf(" 127.0.0.1:%d@", port)) {
			return false
		}
	}
	return true
}

// Addrs returns the announced addresses of the nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.announced))
	for i, port := range c.announced {
		addrs[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	return addrs
}

// URL returns "redis-cluster://addr,addr", with the password if there is one.
func (c *Cluster) URL() string {
	return "redis-cluster://" + userinfo(c.password) + strings.Join(c.Addrs(), ",")
}

// userinfo returns the part of a URL in front of the host.
func userinfo(password string) string {
	if password == "" {
		return ""
	}
	return url.UserPassword("", password).String() + "@"
}

// ClusterClient returns a go-redis client of c with default options. It is closed when tb ends. It is no method, as
// [Client] is none.
func ClusterClient(tb testing.TB, c *Cluster) *redis.ClusterClient {
	tb.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Password: c.password})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Masters returns the servers that run and are masters now.
func (c *Cluster) Masters(tb testing.TB) []*Server {
	tb.Helper()
	var masters []*Server
	for _, s := range c.members() {
		if s.Running() && s.isMaster(tb) {
			masters = append(masters, s)
		}
	}
	return masters
}

// Keys returns the keys of all masters in order, as [Server.Keys] does.
func (c *Cluster) Keys(tb testing.TB, patterns ...string) []string {
	tb.Helper()
	var keys []string
	for _, s := range c.Masters(tb) {
		keys = append(keys, s.Keys(tb, patterns...)...)
	}
	slices.Sort(keys)
	return keys
}
