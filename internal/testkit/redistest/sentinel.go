package redistest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const (
	sentinels = 3
	quorum    = 2
)

// Sentinel has three Sentinels and the pairs of servers that they watch.
type Sentinel struct {
	Pairs []*Pair

	servers  []*Server
	password string
}

// StartSentinel starts the given number of pairs, whose replicas have their
// master's data, and three Sentinels that watch all pairs. It returns when each
// Sentinel knows all servers: after two to five seconds. The Sentinels replace
// a master when two of them have missed it for a time that is longer than any
// test, or that [Pair.FailOverAfter] sets.
//
// args are as for [Start] and for the servers of the pairs. If they set
// "--requirepass", the Sentinels want the same password.
func StartSentinel(tb testing.TB, pairs int, args ...string) *Sentinel {
	tb.Helper()
	if pairs < 1 {
		tb.Fatal("redistest: a Sentinel needs a pair to watch")
	}
	testmain.SkipIn(tb, testmain.Quick, "starts Sentinels")
	w := &Sentinel{}
	w.password, _ = option(args, "--requirepass")
	for i := range pairs {
		p := &Pair{Name: "pair-" + strconv.Itoa(i), Master: Start(tb, args...), watched: w}
		p.Replica = StartReplica(tb, p.Master, args...) // a Sentinel that finds the replica in sync needs ten seconds less
		w.Pairs = append(w.Pairs, p)
	}
	for range sentinels {
		s := w.watch(tb)
		tb.Cleanup(s.Remove)
		w.servers = append(w.servers, s)
	}
	w.await(tb)
	return w
}

// watch starts one Sentinel, which stores its state in its configuration file.
func (w *Sentinel) watch(tb testing.TB) *Server {
	tb.Helper()
	p, err := process.New("sentinel", process.Killed, nil)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{Program: p, bin: binary(tb), password: w.password}
	conf := filepath.Join(s.Dir(), "sentinel.conf")
	err = s.startAt(func() *exec.Cmd {
		if err := os.WriteFile(conf, []byte(w.config(s)), 0o600); err != nil {
			tb.Fatal(err)
		}
		return exec.CommandContext(context.Background(), s.bin, conf, "--sentinel") //nolint:gosec // the binary is the developer's choice
	})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func (w *Sentinel) config(s *Server) string {
	var b strings.Builder
	fmt.Fprintf(&b, "port %d\nbind 127.0.0.1\ndir %s\n", s.port, s.Dir())
	if w.password != "" {
		fmt.Fprintf(&b, "requirepass %q\n", w.password)
	}
	for _, p := range w.Pairs {
		fmt.Fprintf(&b, "sentinel monitor %s 127.0.0.1 %d %d\n", p.Name, p.Master.Port(), quorum)
		fmt.Fprintf(&b, "sentinel down-after-milliseconds %s %d\n", p.Name, calm.Milliseconds())
		fmt.Fprintf(&b, "sentinel failover-timeout %s 2000\n", p.Name)
		if w.password != "" {
			fmt.Fprintf(&b, "sentinel auth-pass %s %q\n", p.Name, w.password)
		}
	}
	return b.String()
}

// await returns when every Sentinel knows the others and all replicas.
func (w *Sentinel) await(tb testing.TB) {
	tb.Helper()
	for _, s := range w.servers {
		for _, p := range w.Pairs {
			var is map[string]string
			eventually(tb, func() bool {
				is = p.master(tb, s)
				return is["flags"] == "master" && is["num-slaves"] == "1" && is["num-other-sentinels"] == strconv.Itoa(sentinels-1)
			}, func() string { return fmt.Sprintf("a Sentinel knows only %v", is) })
		}
		// A Sentinel that gets no CPU time for two seconds would do nothing for
		// the next thirty. Servers without this setting work too.
		c := adminClient(s)
		_ = c.Do(tb.Context(), "SENTINEL", "DEBUG", "TILT-TRIGGER", time.Minute.Milliseconds()).Err()
		_ = c.Close()
	}
}

// Addrs returns the addresses of the Sentinels.
func (w *Sentinel) Addrs() []string {
	addrs := make([]string, len(w.servers))
	for i, s := range w.servers {
		addrs[i] = s.Addr()
	}
	return addrs
}
