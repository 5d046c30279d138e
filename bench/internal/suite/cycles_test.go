package suite_test

import (
	"testing"

	"github.com/httplatch/httplatch/bench/internal/peer"
)

// BenchmarkCycles measures callers that take and release their own keys.
func BenchmarkCycles(b *testing.B) { measureCycles(b, 1, 8, 64, 256, 1024) }

// BenchmarkFewCallers measures the most usual loads, for machines that are idle, busy, or
// have one core for this process.
func BenchmarkFewCallers(b *testing.B) { measureCycles(b, 1, 2, 4, 8, 16, 32) }

// measureCycles measures few callers twice a round: they wait most of the time for the
// machine to wake one of them up, and how long it takes for that changes by half from one
// second to the next.
func measureCycles(b *testing.B, of ...int) {
	b.Helper()
	const few = 8
	srv := startServer(b)
	sent := srv.sentBy(b, peer.All())
	for round := range *rounds {
		for _, callers := range of {
			all := peers(func(b *testing.B, p peer.Peer) { measureCycle(b, srv, p, callers, sent[p.Name]) })
			inTurns(b, round, callersCase(callers), all)
			if callers <= few {
				inTurns(b, *rounds+round, callersCase(callers), all)
			}
		}
	}
}

// measureCycle measures one library once. sent are the commands that it sends.
func measureCycle(b *testing.B, srv *server, p peer.Peer, callers int, sent commands) {
	b.Helper()
	srv.flush(b)
	closedLoop(b, srv, sent, most(callers), cycles(open(b, p, srv.addr), most(callers)))
}
