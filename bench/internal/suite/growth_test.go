package suite_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// BenchmarkGrowth measures the cost of a cycle while so many other keys are live, and the room that they take.
func BenchmarkGrowth(b *testing.B) {
	const callers = 8
	ours, _ := peer.Named(peer.Ours)
	type grown struct {
		keys, n int
		srv     *server
		beside  float64 // bytes a key
	}
	var all []grown
	for _, keys := range []int{1000, 100_000, 1_000_000} {
		g := grown{keys: keys, n: size(keys, 1000), srv: startServer(b)}
		client := peer.NewClient(target(g.srv.addr))
		before := g.srv.memory(b)
		length := fill(b, redisstore.New(client), 64, g.n)
		g.beside = (g.srv.memory(b) - before - length) / float64(g.n)
		require.NoError(b, client.Close())
		all = append(all, g)
	}
	for round := range *rounds {
		for _, g := range all {
			inTurns(b, round, fmt.Sprintf("%d live keys", g.keys), []contender{
				{"memory store", func(b *testing.B) { measureMemory(b, callers, g.n) }},
				{"Redis store", func(b *testing.B) {
					b.ReportMetric(g.beside, report.KeyBytes)
					closedLoop(b, g.srv, nil, callers, cycles(open(b, ours, g.srv.addr), callers))
				}},
			})
		}
	}
}

// measureMemory measures an embedded store that it fills, and leaves to the garbage collector.
func measureMemory(b *testing.B, callers, n int) {
	b.Helper()
	before := heap()
	s := peer.NewMemory(2*n + 100_000)
	length := fill(b, s, 1, n)
	b.ReportMetric((heap()-before-length)/float64(n), report.KeyBytes)
	l, key := peer.NewLocker(s), keys(callers)
	cycle := func(ctx context.Context, caller, n int) error {
		lease, err := l.Acquire(ctx, key(caller, n))
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
	warm(b, callers, cycle)
	r, err := closed(b, callers, cycle)()
	require.NoError(b, err)
	reportTimes(b, r)
	require.NoError(b, l.Close(b.Context()))
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// fill claims n keys for an hour, with a token and an owner as long as a Locker's,
// and returns how long the keys are together.
func fill(b *testing.B, s lock.Store, callers, n int) (length float64) {
	b.Helper()
	liveKey := func(i int) string { return fmt.Sprintf("live=%d", i) }
	times(b, callers, n, func(ctx context.Context, caller, i int) error {
		key := liveKey(i*callers + caller)
		e, err := s.Claim(ctx, key, lock.Claim{
			Token: fmt.Sprintf("AAAAAAAAAAAAAAAAAAAAAA.%07d.AAAAAAAAAAA", i), Attempt: 1, Owner: "a-host-name:12345", Lease: time.Hour,
		})
		if err == nil && e.State != lock.Held {
			err = fmt.Errorf("%s was not claimed", key)
		}
		return err
	})
	for i := range n {
		length += float64(len(liveKey(i)))
	}
	return length
}
