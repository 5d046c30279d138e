package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/process"
)

// StartReplica starts a replica of master and returns when it has master's data
// and master counts it as a replica. args are as for [Start].
func StartReplica(tb testing.TB, master *Server, args ...string) *Server {
	tb.Helper()
	// A master waits for more replicas, for five seconds unless configured otherwise.
	master.Do(tb, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
	args = append([]string{"--replicaof", "127.0.0.1 " + strconv.Itoa(master.Port())}, args...)
	if master.password != "" {
		args = append(args, "--masterauth", master.password)
	}
	s := Start(tb, args...)
	s.AwaitSync(tb, master)
	return s
}

// AwaitSync returns when s, a replica, has all writes that master has at the time of the call.
func (s *Server) AwaitSync(tb testing.TB, master *Server) {
	tb.Helper()
	want := offset(tb, master)
	for deadline := time.Now().Add(process.Patience); !s.synced(tb, master, want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("redistest: no replica after %v:\n%v\n%v", process.Patience,
				s.Do(tb, "INFO", "replication"), master.Do(tb, "INFO", "replication"))
		}
	}
}

func (s *Server) synced(tb testing.TB, master *Server, want int64) bool {
	tb.Helper()
	mine, theirs := fmt.Sprint(s.Do(tb, "INFO", "replication")), fmt.Sprint(master.Do(tb, "INFO", "replication"))
	return strings.Contains(mine, "master_link_status:up") &&
		strings.Contains(theirs, fmt.Sprintf("port=%d,state=online", s.port)) &&
		offset(tb, s) >= want
}

// offset returns the position of s in the stream of a master's writes.
func offset(tb testing.TB, s *Server) int64 {
	tb.Helper()
	name := "master_repl_offset:"
	info := fmt.Sprint(s.Do(tb, "INFO", "replication"))
	if strings.Contains(info, "role:slave") {
		name = "slave_repl_offset:"
	}
	_, after, _ := strings.Cut(info, name)
	text, _, _ := strings.Cut(after, "\r")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		tb.Fatalf("redistest: %s%v", name, err)
	}
	return n
}

// Promote makes a replica a master. Writes that its old master had not sent to
// it are lost.
func (s *Server) Promote(tb testing.TB) {
	tb.Helper()
	s.Do(tb, "REPLICAOF", "NO", "ONE")
}
