package suite_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/report"
)

// BenchmarkCrowd measures far more callers than a server can answer at once: the share that is
// served, the same where all come together to a contender without connections, and the
// memory of a caller that waits.
func BenchmarkCrowd(b *testing.B) {
	const few, crowd = 256, 10_000
	many := size(crowd, 100)
	srv := startServer(b)
	sent := srv.sentBy(b, peer.All())
	fresh := func(run func(b *testing.B, name string, l peer.Locker)) []contender {
		return peers(func(b *testing.B, p peer.Peer) {
			srv.flush(b)
			run(b, p.Name, open(b, p, srv.addr))
		})
	}
	for round := range *rounds {
		inTurns(b, round, callersCase(few), fresh(func(b *testing.B, name string, l peer.Locker) {
			steady(b, srv, sent[name], most(few), *window/3, *window, cycles(l, most(few)))
		}))
		inTurns(b, round, callersCase(crowd), fresh(func(b *testing.B, name string, l peer.Locker) {
			steady(b, srv, sent[name], many, *window, 3**window, cycles(l, many))
		}))
		inTurns(b, round, callersCase(crowd)+" at once, no connections yet", fresh(func(b *testing.B, _ string, l peer.Locker) {
			charged(b, srv, nil, func() (load.Result, error) { return load.Once(b.Context(), many, cycles(l, many)) })
		}))
		inTurns(b, round, callersCase(crowd/4)+" that wait", fresh(func(b *testing.B, _ string, l peer.Locker) {
			warm(b, most(few), cycles(l, most(few)))
			srv.flush(b)
			reportWaiting(b, srv, l, many/4)
		}))
	}
}

// reportWaiting looks at the heap, at stacks and at goroutines while n callers wait for their
// answer. A caller's own goroutine counts.
func reportWaiting(b *testing.B, srv *server, l peer.Locker, n int) {
	b.Helper()
	// Less than the default budget of a call. As many callers as wait have to come, and the
	// garbage collector to run, within that time, also on a busy machine.
	const stillness = 400 * time.Millisecond
	runtime.GC()
	bytes, goroutines := live()
	srv.pause(b, stillness)
	var began, ended atomic.Int64
	op, all := cycles(l, n), make(chan error, 1)
	go func() {
		_, err := load.Once(b.Context(), n, func(ctx context.Context, caller, n int) error {
			began.Add(1)
			defer ended.Add(1)
			return op(ctx, caller, n)
		})
		all <- err
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began.Load() < int64(n) {
		<-tick.C
	}
	<-tick.C // for the last of them to get to where it waits
	bytesThen, goroutinesThen := live()
	if left := float64(int64(n) - ended.Load()); left > float64(n)/2 {
		b.ReportMetric((bytesThen-bytes)/left, report.WaitBytes)
		b.ReportMetric((goroutinesThen-goroutines)/left, report.WaitRoutines)
	} else {
		b.Logf("only %.0f of %d callers wait while the server does not answer", left, n)
	}
	require.NoError(b, <-all)
}

// live returns how much is reachable, with stacks.
func live() (bytes, goroutines float64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())
}
