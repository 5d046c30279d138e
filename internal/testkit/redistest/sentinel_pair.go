package redistest

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/internal/testkit/process"
)

// Pair is a master and its replica under the watch of a [Sentinel]. Master and
// Replica keep the roles that the servers had at their start.
type Pair struct {
	Name    string // of the master, for Sentinel
	Master  *Server
	Replica *Server

	watched *Sentinel
}

// master returns a Sentinel's report about the master of p.
func (p *Pair) master(tb testing.TB, s *Server) map[string]string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	c := redis.NewSentinelClient(adminClient(s).Options())
	defer func() { _ = c.Close() }()
	is, err := c.Master(ctx, p.Name).Result()
	if err != nil {
		tb.Fatalf("redistest: master of %s: %v", p.Name, err)
	}
	return is
}

// FailOverAfter lets the Sentinels replace a master that is silent for d.
func (p *Pair) FailOverAfter(tb testing.TB, d time.Duration) {
	tb.Helper()
	for _, s := range p.watched.servers {
		s.Do(tb, "SENTINEL", "SET", p.Name, "down-after-milliseconds", d.Milliseconds())
	}
}

// AwaitMaster returns when all Sentinels, and want itself, report want as the
// master.
func (p *Pair) AwaitMaster(tb testing.TB, want *Server) {
	tb.Helper()
	for _, s := range p.watched.servers {
		var is map[string]string
		eventually(tb, func() bool {
			is = p.master(tb, s)
			return net.JoinHostPort(is["ip"], is["port"]) == want.Addr()
		}, func() string { return fmt.Sprintf("a Sentinel has not %s for a master but %v", want.Addr(), is) })
	}
	eventually(tb, func() bool { return want.isMaster(tb) }, func() string { return want.Addr() + " is no master" })
}

// Forget makes sure that the replica gets no write that the master acknowledges
// from here on. It stops the replica and closes its connection: a replica that
// is only stopped would still read the data in its socket. The replica is still
// stopped when Forget returns. Replica.Cont continues it.
func (p *Pair) Forget(tb testing.TB) {
	tb.Helper()
	p.Replica.Stop()
	p.Master.Do(tb, "CLIENT", "KILL", "TYPE", "replica")
}

func (s *Server) isMaster(tb testing.TB) bool {
	tb.Helper()
	role, _ := s.Do(tb, "ROLE").([]any)
	return len(role) > 0 && role[0] == "master"
}
