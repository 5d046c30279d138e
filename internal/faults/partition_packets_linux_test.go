package faults_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// insideEnv tells the test binary that it runs in a network namespace of its
// own, whose loopback interface is all the network there is.
const insideEnv = "LATCH_TEST_NETWORK"

// lostPackets make the partitions of TestPartitions once more, in a packet
// filter. What differs is the kernel: it goes on sending what was written to a
// connection, a closed one too, and delivers it after the partition.
var lostPackets = []struct {
	name string
	are  []string // those to or from the server's port, as a rule for nft says it
}{
	{"both ways", []string{"tcp dport", "tcp sport"}},
	{"answers lost", []string{"tcp sport"}},
	{"requests lost", []string{"tcp dport"}},
}

func TestPartitionOfPackets(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "waits while packets are lost")
	t.Parallel()
	if os.Getenv(insideEnv) == "" {
		runInside(t)
		return
	}
	for _, p := range lostPackets {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			newOrdeal(t, server, server.Addr(), lock.ErrUnknown, func() func() { return drop(t, server, p.are) }).requirePass(t)
			requireArrived(t, server)
		})
	}
	t.Run("delivered late", deliveredLate)
}

// deliveredLate: the kernel delivers a claim whose connection was closed long
// ago, and no caller asks for its key. It is removed all the same.
func deliveredLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var reaped atomic.Int64
	l := process(t, open(t, server.URL()), lock.WithObserver(func(_ context.Context, e lock.Event) {
		if e.Kind == lock.EventReaped {
			reaped.Add(1)
		}
	}))
	// Not always is there a connection that the claim can be written to.
	for try := range 10 {
		release(t, acquired(t, l, "user=warm"))
		over := drop(t, server, []string{"tcp dport"})
		_, err := l.Acquire(t.Context(), fmt.Sprintf("user=%d", try))
		over()
		require.ErrorIs(t, err, lock.ErrUnavailable)
		requireArrived(t, server)
		if reaped.Load() > 0 {
			return
		}
	}
	t.Error("no claim was delivered late")
}

// requireArrived waits until the kernel has delivered all that was sent to the
// server, and then for nothing of it to be left.
func requireArrived(t *testing.T, server *redistest.Server) {
	t.Helper()
	began := time.Now()
	until(t, func() bool { return underWay(t, server.Port()) == 0 })
	arrived := time.Since(began)
	require.NoError(t, left(t, server, soon))
	t.Logf("the last bytes of closed connections had arrived after %v, and nothing of them was left after %v",
		arrived.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

// drop makes the packets to and from the server's port vanish that one of the
// matches is about.
func drop(t *testing.T, server *redistest.Server, matches []string) (over func()) {
	t.Helper()
	table := fmt.Sprintf("inet latch%d", server.Port())
	rules := fmt.Sprintf("add table %[1]s; add chain %[1]s in { type filter hook input priority 0; }", table)
	for _, match := range matches {
		rules += fmt.Sprintf("; add rule %s in %s %d drop", table, match, server.Port())
	}
	filter(t, rules)
	return func() { filter(t, "delete table "+table) }
}

// runInside runs this test again, in a network namespace, which needs no more
// than ip, nft and a kernel that lets this user make one. A kernel that does not is
// no reason to fail, in CI either: TestPartitions, whose proxy needs nothing, covers
// the same faults.
func runInside(t *testing.T) {
	t.Helper()
	const why = "this time without packets that get lost: "
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			testmain.Unavailable(t, why+"apt-get install iproute2 nftables | dnf install iproute nftables", err)
		}
	}
	if out, err := namespaced(t, "sh", "-c", "ip link set lo up && nft list ruleset").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED, %sno network namespace with a packet filter for this user: %v %s", why, err, bytes.TrimSpace(out))
	}
	cmd := namespaced(t, "sh", "-c", `ip link set lo up && exec "$0" "$@"`,
		os.Args[0], "-test.run=^TestPartitionOfPackets$", "-test.v", "-test.timeout=2m", "-test.parallel=4")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("inside:\n%s", out)
	require.NoError(t, err)
}

// namespaced is a command in its own network namespace. A user other than
// root is root in there.
func namespaced(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	}
	return cmd
}

// filter runs nft.
func filter(t *testing.T, commands string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "nft", commands)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", commands, out)
}

// underWay counts the connections to port that the kernel has not done with: it
// still tries to make them, or to deliver the last bytes of closed ones.
func underWay(t *testing.T, port int) (n int) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	require.NoError(t, err)
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // number, local address, remote address, state in hex
		if len(f) > 3 && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", port)) {
			switch f[3] {
			case "02", "04", "09", "0B": // SYN_SENT, FIN_WAIT1, LAST_ACK, CLOSING
				n++
			}
		}
	}
	return n
}
