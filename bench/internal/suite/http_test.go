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

// orders are all that is compared.
func orders() (all []order) {
	for _, d := range web.All() {
		all = append(all, order{d.Name, d, false})
		if slices.Contains([]string{web.OnceMemory, web.OnceRedis, web.FiberOnceMemory, web.FiberOnceRedis}, d.Name) {
			all = append(all, order{d.Name + ", replay", d, true})
		}
	}
	return all
}

// desks makes a contender of each of these.
func desks(names []string, run func(b *testing.B, d web.Desk)) []contender {
	return each(names, func(name string) string { return name }, func(b *testing.B, name string) {
		d, ok := web.Named(name)
		require.True(b, ok)
		run(b, d)
	})
}

// visit opens a desk and so many connections to it.
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

// clients are the connections of all callers, one each.
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
