package redistest

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// Slot returns the hash slot of key.
func (c *Cluster) Slot(tb testing.TB, key string) int {
	tb.Helper()
	slot, ok := c.running(tb).Do(tb, "CLUSTER", "KEYSLOT", key).(int64)
	if !ok {
		tb.Fatalf("redistest: no slot of %q", key)
	}
	return int(slot)
}

// Owner returns the master of key's slot, as reported by the first node that
// runs.
func (c *Cluster) Owner(tb testing.TB, key string) *Server {
	tb.Helper()
	slot := c.Slot(tb, key)
	owner := c.ownerBy(tb, c.running(tb), slot)
	if owner == nil {
		tb.Fatalf("redistest: slot %d of %q has no owner", slot, key)
	}
	return owner
}

// AwaitOwner returns when every node that runs reports want as the master of
// key's slot, and the cluster as up.
func (c *Cluster) AwaitOwner(tb testing.TB, key string, want *Server) {
	tb.Helper()
	slot := c.Slot(tb, key)
	for _, s := range c.members() {
		if !s.Running() {
			continue
		}
		c.eventually(tb, s, fmt.Sprintf("has slot %d not at %s", slot, want.Addr()), func() bool {
			return c.ownerBy(tb, s, slot) == want && strings.Contains(fmt.Sprint(s.Do(tb, "CLUSTER", "INFO")), stateOK)
		})
	}
}

// ownerBy returns the master of slot as reported by s, nil if s knows none.
func (c *Cluster) ownerBy(tb testing.TB, s *Server, slot int) *Server {
	tb.Helper()
	ranges, _ := s.Do(tb, "CLUSTER", "SLOTS").([]any)
	for _, r := range ranges {
		fields, _ := r.([]any) // first slot, last slot, master, replicas
		if len(fields) < 3 {
			continue
		}
		first, _ := fields[0].(int64)
		last, _ := fields[1].(int64)
		if master, ok := fields[2].([]any); ok && int(first) <= slot && slot <= int(last) {
			return c.at(net.JoinHostPort(fmt.Sprint(master[0]), fmt.Sprint(master[1])))
		}
	}
	return nil
}

// at returns the server that clients know by addr.
func (c *Cluster) at(addr string) *Server {
	for i, announced := range c.Addrs() {
		if announced == addr {
			return c.Nodes[i]
		}
	}
	for _, s := range c.Replicas {
		if s.Addr() == addr {
			return s
		}
	}
	return nil
}

func (c *Cluster) running(tb testing.TB) *Server {
	tb.Helper()
	for _, s := range c.members() {
		if s.Running() {
			return s
		}
	}
	tb.Fatal("redistest: no node runs")
	return nil
}
