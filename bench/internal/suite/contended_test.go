package suite_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/report"
)

const contendedKey = "user=42"

// BenchmarkContended measures how many duplicates are refused in a second: all callers
// want one key, which has a holder. Callers of the holder's process are refused by this library
// itself. In the second case every caller has its own process: of several in one process it would
// refuse all but the one whose claim is on its way.
func BenchmarkContended(b *testing.B) {
	const callers, processes = 64, 4
	srv := startServer(b)
	sent := srv.sentBy(b, peer.All())
	held := func(refuse func(b *testing.B, p peer.Peer, l peer.Locker)) []contender {
		return peers(func(b *testing.B, p peer.Peer) {
			srv.flush(b)
			l := open(b, p, srv.addr)
			h, err := l.Acquire(b.Context(), contendedKey)
			require.NoError(b, err)
			refuse(b, p, l)
			require.NoError(b, h.Release(b.Context()))
		})
	}
	for round := range *rounds {
		inTurns(b, round, "64 callers of the holder's process", held(func(b *testing.B, p peer.Peer, l peer.Locker) {
			closedLoop(b, srv, sent[p.Name], most(callers), refusals(l))
		}))
		inTurns(b, round, "1 caller in each of 4 other processes", held(func(b *testing.B, p peer.Peer, _ peer.Locker) {
			refusedElsewhere(b, srv, sent[p.Name], processes, job{Kind: "refusals", Peer: p.Name, Addr: srv.addr, Window: *window})
		}))
	}
}

// refusals asks for a key that is held, and wants to be refused.
func refusals(l peer.Locker) load.Op {
	return func(ctx context.Context, _, _ int) error {
		switch _, err := l.Acquire(ctx, contendedKey); {
		case errors.Is(err, peer.ErrRefused):
			return nil
		case err == nil:
			return errors.New("a key that is held was granted")
		default:
			return err
		}
	}
}

// refusedElsewhere measures callers of other processes, all at once. Their cost counts
// from when they are ready, so that it is also of the times that are not measured.
func refusedElsewhere(b *testing.B, srv *server, sent commands, processes int, j job) {
	b.Helper()
	var all []*child
	for range processes {
		all = append(all, start(b, j))
	}
	before, err := srv.usage(b.Context())
	require.NoError(b, err)
	answers, errs := make([]answer, processes), make([]error, processes)
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() { answers[i], errs[i] = c.ask() })
	}
	wg.Wait()
	require.NoError(b, errors.Join(errs...))
	after, err := srv.usage(b.Context())
	require.NoError(b, err)
	rate, times := 0.0, 0
	before.client, after.client, after.mallocs = 0, 0, 0 // the children's count
	for _, a := range answers {
		rate += a.Rate
		times += a.Times
		after.client += a.CPU
	}
	b.ReportMetric(rate, report.Rate)
	reportCosts(b, sent, before, after, times)
}

// refusing is the child's side of refusedElsewhere.
func refusing(t *testing.T, j job) (answer, func() answer) {
	t.Helper()
	p, ok := peer.Named(j.Peer)
	require.True(t, ok)
	op := refusals(open(t, p, j.Addr))
	return answer{}, func() answer {
		before, err := processCPU()
		require.NoError(t, err)
		warm, err := load.Closed(t.Context(), 1, j.Window/5, op)
		require.NoError(t, err)
		r, err := load.Closed(t.Context(), 1, j.Window, op)
		require.NoError(t, err)
		after, err := processCPU()
		require.NoError(t, err)
		return answer{Rate: r.Rate(), Times: len(warm.Took) + len(r.Took), CPU: after - before}
	}
}
