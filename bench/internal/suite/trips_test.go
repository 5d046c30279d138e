package suite_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/web"
)

// BenchmarkTrips counts the commands that reach the server of so many requests or cycles.
// It counts, so once is enough.
func BenchmarkTrips(b *testing.B) {
	srv := startServer(b)
	counted := size(10_000, 1000)
	reportTrips := func(b *testing.B, sent commands) {
		b.Logf("%v", sent)
		b.ReportMetric(float64(sent.total())/float64(counted), report.Trips)
	}
	inTurns(b, 0, "a lock cycle", peers(func(b *testing.B, p peer.Peer) {
		reportTrips(b, srv.cycleCommands(b, open(b, p, srv.addr), counted))
	}))
	requests := func(op func(c *clients) func(phase int) load.Op, of ...string) []contender {
		return desks(of, func(b *testing.B, d web.Desk) {
			srv.flush(b)
			op := op(visit(b, srv, d, closedConns, func() {}))
			times(b, closedConns, closedConns, op(0)) // opens connections, loads scripts
			reportTrips(b, srv.monitor(b, func() { times(b, closedConns, counted, op(1)) }))
		})
	}
	first := func(c *clients) func(int) load.Op { return c.distinct }
	again := func(c *clients) func(int) load.Op { return c.same }
	inTurns(b, 0, "a first request", requests(first, web.LockRedis, web.OnceRedis, web.FiberOnceRedis))
	inTurns(b, 0, "a replay", requests(again, web.OnceRedis, web.FiberOnceRedis))
	inTurns(b, 0, "a duplicate in the holder's process", desks([]string{web.LockRedis, web.OnceRedis}, func(b *testing.B, d web.Desk) {
		reportTrips(b, duplicates(b, srv, d, counted))
	}))
}

// duplicates counts the commands of requests that come while the handler of the first one runs.
func duplicates(b *testing.B, srv *server, d web.Desk, counted int) (sent commands) {
	b.Helper()
	srv.flush(b)
	const user, key = 7, 7
	begun, end, first := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	c := visit(b, srv, d, closedConns+1, func() {
		close(begun) // panics if a duplicate gets here
		<-end
	})
	go func() { first <- c.post(closedConns, user, key, http.StatusCreated) }()
	select {
	case <-begun:
	case err := <-first:
		require.FailNow(b, "the first request ended before its duplicates", "%v", err)
	}
	defer func() {
		close(end)
		require.NoError(b, <-first)
	}()
	return srv.monitor(b, func() {
		times(b, closedConns, counted, func(_ context.Context, caller, _ int) error {
			return c.post(caller, user, key, http.StatusConflict)
		})
	})
}
