package suite_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/web"
)

const (
	closedConns, openConns = 64, 256
	openRate               = 4000 // requests a second
)

// BenchmarkHTTP measures clients that post orders over TCP, in a closed loop of connections
// that are never idle, and in an open one of requests that are due at a given rate. Clients,
// servers and Redis share the machine, as they do for every contender.
func BenchmarkHTTP(b *testing.B) {
	srv := startServer(b)
	for round := range *rounds {
		due := load.Arrivals(openRate, *window, rand.Uint64())
		for kase, loop := range map[string]struct {
			conns int
			run   func(b *testing.B, op load.Op) func() (load.Result, error)
		}{
			"closed loop, 64 connections": {closedConns, func(b *testing.B, op load.Op) func() (load.Result, error) {
				return closed(b, most(closedConns), op)
			}},
			fmt.Sprintf("open loop, %d requests/s", openRate): {openConns, func(b *testing.B, op load.Op) func() (load.Result, error) {
				return func() (load.Result, error) { return load.Open(b.Context(), most(openConns), due, op) }
			}},
		} {
			inTurns(b, round, kase, each(orders(), func(o order) string { return o.who }, func(b *testing.B, o order) {
				srv.flush(b)
				c := visit(b, srv, o.desk, most(loop.conns), func() {})
				op := c.distinct
				if o.replay {
					op = c.same
				}
				warm(b, most(loop.conns), op(0))
				charged(b, srv, nil, loop.run(b, op(1)))
			}))
		}
	}
}

// order is a desk and the request to it.
type order struct {
	who    string
	desk   web.Desk
	replay bool // the same key again and again
}

func orders() (all []order) {
	for _, d := range web.All() {
		all = append(all, order{d.Name, d, false})
		if slices.Contains([]string{web.OnceMemory, web.OnceRedis, web.FiberOnceMemory, web.FiberOnceRedis}, d.Name) {
			all = append(all, order{d.Name + ", replay", d, true})
		}
	}
	return all
}

func desks(names []string, run func(b *testing.B, d web.Desk)) []contender {
	return each(names, func(name string) string { return name }, func(b *testing.B, name string) {
		d, ok := web.Named(name)
		require.True(b, ok)
		run(b, d)
	})
}

func visit(b *testing.B, srv *server, d web.Desk, conns int, work func()) *clients {
	b.Helper()
	svc, err := d.Open(b.Context(), target(srv.addr), work)
	require.NoError(b, err)
	c := &clients{}
	b.Cleanup(func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), 10*time.Second)
		defer cancel()
		require.NoError(b, errors.Join(c.close(), svc.Close(end)))
	})
	for range conns {
		conn, err := web.Dial(b.Context(), svc.Addr)
		require.NoError(b, err)
		c.conns = append(c.conns, conn)
	}
	return c
}

type clients struct{ conns []*web.Conn }

func (c *clients) close() (err error) {
	for _, conn := range c.conns {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// distinct are orders of separate users under separate keys, others in each phase.
func (c *clients) distinct(phase int) load.Op {
	return func(_ context.Context, caller, n int) error {
		id := phase*50_000_000 + caller + n*len(c.conns)
		return c.post(caller, id, id, http.StatusCreated)
	}
}

// same is one order of each caller, again and again, in all phases.
func (c *clients) same(int) load.Op {
	return func(_ context.Context, caller, _ int) error {
		return c.post(caller, caller, caller, http.StatusCreated)
	}
}

func (c *clients) post(caller, user, key, want int) error {
	got, err := c.conns[caller].Order(user, key)
	if err == nil && got != want {
		err = fmt.Errorf("an answer with status %d, not %d", got, want)
	}
	return err
}

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
