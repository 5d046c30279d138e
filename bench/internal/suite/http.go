package suite

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/web"
)

// HTTP is the part in which clients post orders over TCP, in a closed and in an
// open loop. Clients, servers and Redis share the machine, as they do for every
// contender.
const HTTP = "http"

// ClosedLoop is the case of so many connections that are never idle.
const ClosedLoop = "closed loop, 64 connections"

// OpenLoop is the case of requests that are due at a given rate.
func OpenLoop(rate float64) string { return fmt.Sprintf("open loop, %.0f requests/s", rate) }

const closedConns, openConns = 64, 256

// Replayed names a desk that is asked for answers that it has.
func Replayed(desk string) string { return desk + ", replay" }

// order is a desk and what it is asked for.
type order struct {
	who    string
	desk   web.Desk
	replay bool // the same key again and again
}

// orders are all that is compared.
func orders() []order {
	var all []order
	for _, d := range web.All() {
		all = append(all, order{d.Name, d, false})
	}
	for _, name := range []string{web.OnceMemory, web.OnceRedis, web.FiberOnceMemory, web.FiberOnceRedis} {
		d, _ := web.Named(name)
		all = append(all, order{Replayed(name), d, true})
	}
	return all
}

func measureHTTP(ctx context.Context, b *bench) error {
	srv, all := b.server(), orders()
	return b.fewRounds(ctx, 1, func(int) error {
		due := load.Arrivals(b.Rate, b.Window, b.random.Uint64()) // the same for all in a round
		err := b.shuffled(ctx, len(all), func(i int) error {
			return b.measureOrder(ctx, srv, all[i], ClosedLoop, closedConns, func(op load.Op) (load.Result, error) {
				return load.Closed(ctx, closedConns, b.Window, op)
			})
		})
		if err != nil {
			return err
		}
		return b.shuffled(ctx, len(all), func(i int) error {
			return b.measureOrder(ctx, srv, all[i], OpenLoop(b.Rate), openConns, func(op load.Op) (load.Result, error) {
				return load.Open(ctx, openConns, due, op)
			})
		})
	})
}

// measureOrder measures one desk once.
func (b *bench) measureOrder(ctx context.Context, srv *server, o order, kase string, conns int, run func(load.Op) (load.Result, error)) error {
	if err := srv.flush(ctx); err != nil {
		return err
	}
	return b.visit(ctx, srv, o.desk, conns, func() {}, func(c *clients) error {
		op := c.distinct
		if o.replay {
			op = c.same
		}
		if _, err := load.Closed(ctx, conns, b.Window/5, op(0)); err != nil {
			return err
		}
		r, err := b.charged(ctx, srv, kase, o.who, nil, func() (load.Result, error) { return run(op(1)) })
		if err != nil {
			return err
		}
		b.addTimes(kase, o.who, r)
		return nil
	})
}

// visit opens a desk and so many connections to it.
func (b *bench) visit(ctx context.Context, srv *server, d web.Desk, conns int, work func(), f func(c *clients) error) (err error) {
	svc, err := d.Open(ctx, peer.Target{Addr: srv.addr, Pool: b.Pool}, work)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	c := &clients{}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, c.close(), svc.Close(end))
	}()
	for range conns {
		conn, err := web.Dial(ctx, svc.Addr)
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		c.conns = append(c.conns, conn)
	}
	if err := f(c); err != nil {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	return nil
}

// clients are the connections of all callers, one each.
type clients struct{ conns []*web.Conn }

func (c *clients) close() error {
	var err error
	for _, conn := range c.conns {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// distinct are orders of separate users under separate keys. Those of
// one phase are not those of another.
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
