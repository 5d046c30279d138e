package suite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
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

func measureCycle(b *testing.B, srv *server, p peer.Peer, callers int, sent commands) {
	b.Helper()
	srv.flush(b)
	closedLoop(b, srv, sent, most(callers), cycles(open(b, p, srv.addr), most(callers)))
}

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
			h := must.Get(l.Acquire(b.Context(), contendedKey))(b)
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
	before := must.Get(srv.usage(b.Context()))(b)
	answers, errs := make([]answer, processes), make([]error, processes)
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() { answers[i], errs[i] = c.ask() })
	}
	wg.Wait()
	require.NoError(b, errors.Join(errs...))
	after := must.Get(srv.usage(b.Context()))(b)
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
		before := must.Get(processCPU())(t)
		warm := must.Get(load.Closed(t.Context(), 1, j.Window/5, op))(t)
		r := must.Get(load.Closed(t.Context(), 1, j.Window, op))(t)
		after := must.Get(processCPU())(t)
		return answer{Rate: r.Rate(), Times: len(warm.Took) + len(r.Took), CPU: after - before}
	}
}

const stalledKey = "stalled"

// BenchmarkStalls measures how one reply in a thousand that comes 100 ms late affects the
// other cycles. The late ones are not counted, and all cases run through a proxy.
func BenchmarkStalls(b *testing.B) {
	const late = 100 * time.Millisecond
	cases := []struct {
		name    string
		callers int
		delay   time.Duration
	}{
		{"256 callers", 256, 0},
		{"256 callers, one reply in 1,000 late", 256, late},
		{"64 callers, one reply in 1,000 late", 64, late},
	}
	srv := startServer(b)
	proxies := make([]*child, len(cases))
	for i, c := range cases {
		proxies[i] = start(b, job{Kind: "stalls", Addr: srv.addr, Delay: c.delay})
	}
	for round := range *rounds {
		for i, c := range cases {
			inTurns(b, round, c.name, peers(func(b *testing.B, p peer.Peer) {
				srv.flush(b)
				must.Get(proxies[i].ask())(b)
				callers := most(c.callers)
				closedLoop(b, srv, nil, callers, othersThanStalled(open(b, p, proxies[i].ready.Addr), callers))
			}))
		}
	}
}

// firstTime reports whether it has not seen a command before. A reply is late, not a key: a
// caller that sends the same command again is answered.
func firstTime() func(args [][]byte) bool {
	var seen sync.Map
	return func(args [][]byte) bool {
		_, known := seen.LoadOrStore(string(bytes.Join(args, []byte{0})), nil)
		return !known
	}
}

// othersThanStalled are cycles. One in a thousand has a key with late replies, by the proxy.
func othersThanStalled(l peer.Locker, callers int) load.Op {
	const one = 1000
	key := keys(callers)
	return func(ctx context.Context, caller, n int) error {
		// Not all callers at once, and each soon.
		if (n+caller*37)%one != one-1 {
			return peer.Cycle(ctx, l, key(caller, n))
		}
		if err := peer.Cycle(ctx, l, fmt.Sprintf("%s=%d.%d", stalledKey, caller, n)); err != nil {
			return err
		}
		return load.ErrApart
	}
}

// BenchmarkLatency measures cycles with a server that is far away: behind a proxy that makes
// each round trip take 5 ms longer.
func BenchmarkLatency(b *testing.B) {
	srv := startServer(b)
	sent := srv.sentBy(b, peer.All())
	addr := start(b, job{Kind: "far", Addr: srv.addr, Delay: 5 * time.Millisecond}).ready.Addr
	measure(b, 0, "a PING", "the proxy", func(b *testing.B) {
		client := peer.NewClient(peer.Target{Addr: addr, Pool: 1})
		defer func() { _ = client.Close() }()
		ping := func(ctx context.Context, _, _ int) error { return client.Ping(ctx).Err() }
		times(b, 1, 3, ping)
		b.ReportMetric(micros(times(b, 1, 25, ping).Percentile(50)), report.P50)
	})
	for round := range *rounds {
		for _, callers := range []int{64, 256, 1024} {
			inTurns(b, round, callersCase(callers), peers(func(b *testing.B, p peer.Peer) {
				srv.flush(b)
				warm := *window / 2
				if callers > 256 {
					warm *= 2 // with twenty connections 1,024 callers need half a second for their first cycle
				}
				steady(b, srv, sent[p.Name], most(callers), warm, *window, cycles(open(b, p, addr), most(callers)))
			}))
		}
	}
}

const scriptCallers = 256

// BenchmarkScripts compares the server's own compare-and-act with scripts, on the server
// that REDIS_SERVER names: it needs Valkey 9.0 or Redis 8.4. Renewals are of 256 callers,
// each of its own lease.
func BenchmarkScripts(b *testing.B) {
	srv := startServer(b)
	sent := srv.sentBy(b, peer.Compared())
	name := func(p peer.Peer) string { return p.Name }
	for round := range *rounds {
		inTurns(b, round, callersCase(scriptCallers), each(peer.Compared(), name, func(b *testing.B, p peer.Peer) {
			measureCycle(b, srv, p, scriptCallers, sent[p.Name])
		}))
		inTurns(b, round, "renewals", []contender{
			{peer.Ours, func(b *testing.B) { measureRenewals(b, srv, func(s *redisstore.Store) lock.Store { return s }) }},
			{peer.Scripted, func(b *testing.B) {
				measureRenewals(b, srv, func(s *redisstore.Store) lock.Store { return peer.ByToken{Store: s} })
			}},
		})
	}
}

var errNotRenewed = errors.New("bench: a lease was not renewed")

func measureRenewals(b *testing.B, srv *server, renewing func(s *redisstore.Store) lock.Store) {
	b.Helper()
	client := peer.NewClient(target(srv.addr))
	defer func() { _ = client.Close() }()
	store := redisstore.New(client)
	defer func() { _ = store.Close() }()
	srv.flush(b)
	callers, renewer := most(scriptCallers), renewing(store)
	key := keys(callers)
	claim := lock.Claim{Token: "t", Attempt: 1, Owner: "bench", Lease: time.Minute, Longest: true}
	for caller := range callers {
		must.Get(store.Claim(b.Context(), key(caller, 0), claim))(b)
	}
	closedLoop(b, srv, nil, callers, func(ctx context.Context, caller, _ int) error {
		ok, err := renewer.Renew(ctx, key(caller, 0), claim)
		if err == nil && !ok {
			err = errNotRenewed
		}
		return err
	})
}

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
	size, goroutines := live()
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
	sizeThen, goroutinesThen := live()
	if left := float64(int64(n) - ended.Load()); left > float64(n)/2 {
		b.ReportMetric((sizeThen-size)/left, report.WaitBytes)
		b.ReportMetric((goroutinesThen-goroutines)/left, report.WaitRoutines)
	} else {
		b.Logf("only %.0f of %d callers wait while the server does not answer", left, n)
	}
	require.NoError(b, <-all)
}

// live returns how much is reachable, with stacks.
func live() (size, goroutines float64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())
}
