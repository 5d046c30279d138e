package redistest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// calm is the time for which a master has to be silent before its replica takes
// its place, unless a test sets another one: on a busy machine, a running
// master can be silent for seconds.
const calm = 10 * time.Minute

// AddReplicas starts a replica of every master, with the arguments of
// [StartCluster], and returns when all of them have their master's data and all
// nodes know them: after a second or two. A master is replaced when it has been
// silent for a time that no test lasts, or that [Cluster.FailOverAfter] sets.
func (c *Cluster) AddReplicas(tb testing.TB) {
	tb.Helper()
	for i, master := range c.Nodes {
		master.Do(tb, "CONFIG", "SET", "repl-diskless-sync-delay", 0)
		s, _ := c.startNode(tb)
		if c.password != "" {
			s.Do(tb, "CONFIG", "SET", "masterauth", c.password)
			master.Do(tb, "CONFIG", "SET", "masterauth", c.password) // the master may become a replica itself
		}
		s.Do(tb, "CLUSTER", "MEET", "127.0.0.1", master.Port(), c.buses[i])
		c.Replicas = append(c.Replicas, s)
	}
	ids := make([]string, len(c.Nodes))
	for i, s := range c.Replicas {
		ids[i] = fmt.Sprint(c.Nodes[i].Do(tb, "CLUSTER", "MYID"))
		c.eventually(tb, s, "has a replica that does not know its master", func() bool {
			return strings.Contains(c.nodes(tb, s), ids[i])
		})
		s.Do(tb, "CLUSTER", "REPLICATE", ids[i])
	}
	for i, s := range c.Replicas {
		s.AwaitSync(tb, c.Nodes[i])
	}
	c.await(tb)
	for _, s := range c.members() {
		// Nodes first learn that a node is a replica, and later the name of its master.
		c.eventually(tb, s, "does not know its replicas", func() bool {
			nodes := c.nodes(tb, s)
			return !slices.ContainsFunc(ids, func(id string) bool { return !strings.Contains(nodes, "slave "+id) })
		})
	}
	// Only now: the longer the timeout, the less the nodes gossip.
	c.FailOverAfter(tb, calm)
}

// FailOverAfter lets replicas take the place of masters that are silent for d.
func (c *Cluster) FailOverAfter(tb testing.TB, d time.Duration) {
	tb.Helper()
	for _, s := range c.members() {
		if s.Running() {
			s.Do(tb, "CONFIG", "SET", "cluster-node-timeout", d.Milliseconds())
		}
	}
}
