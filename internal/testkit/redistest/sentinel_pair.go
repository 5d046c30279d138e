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
// Replica stay what they were at the start, whatever happens to them.
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
	c := redis.NewSentinelClient(s.adminClient().Options())
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

// AwaitMaster returns when all Sentinels say that want is the master, and it
// says so itself.
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

// Forget makes sure that the replica gets nothing of what the master
// acknowledges from here on, by stopping it and closing its connection: only to
// stop it would leave it what lies in its socket. It still stands when Forget
// returns; Replica.Cont lets it go on.
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
