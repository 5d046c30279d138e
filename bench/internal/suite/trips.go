package suite

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/web"
)

// RoundTrips is the part that counts what reaches the server of so many
// requests or cycles. It counts, so once is enough.
const RoundTrips = "trips"

const counted = 10_000

// Cases of RoundTrips.
const (
	TripsOfCycle     = "a lock cycle"
	TripsOfFirst     = "a first request"
	TripsOfReplay    = "a replay"
	TripsOfDuplicate = "a duplicate in the holder's process"
)

func measureTrips(ctx context.Context, b *bench) error {
	srv := b.server()
	for _, p := range peer.All() {
		err := b.use(ctx, p, srv.addr, func(l peer.Locker) error {
			sent, err := srv.cycleCommands(ctx, l, counted)
			if err != nil {
				return err
			}
			b.addTrips(TripsOfCycle, p.Name, sent)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, name := range []string{web.LockRedis, web.OnceRedis, web.FiberOnceRedis} {
		d, _ := web.Named(name)
		if err := b.tripsOfRequests(ctx, srv, d); err != nil {
			return err
		}
	}
	for _, name := range []string{web.LockRedis, web.OnceRedis} {
		d, _ := web.Named(name)
		if err := b.tripsOfDuplicates(ctx, srv, d); err != nil {
			return err
		}
	}
	return nil
}

// addTrips notes them, and which commands they were.
func (b *bench) addTrips(kase, who string, sent commands) {
	b.log("%s, %s: %v", who, kase, sent)
	b.add(kase, who, Trips, float64(total(sent))/counted)
}

// tripsOfRequests counts those of first requests and, where there are any, of
// replays.
func (b *bench) tripsOfRequests(ctx context.Context, srv *server, d web.Desk) error {
	if err := srv.flush(ctx); err != nil {
		return err
	}
	return b.visit(ctx, srv, d, closedConns, func() {}, func(c *clients) error {
		kinds := map[string]func(phase int) load.Op{TripsOfFirst: c.distinct}
		if d.Name != web.LockRedis {
			kinds[TripsOfReplay] = c.same
		}
		for kase, op := range kinds {
			if _, err := load.Times(ctx, closedConns, closedConns, op(0)); err != nil { // opens connections, loads scripts
				return err
			}
			sent, err := srv.monitor(ctx, func() error {
				_, err := load.Times(ctx, closedConns, counted, op(1))
				return err
			})
			if err != nil {
				return err
			}
			b.addTrips(kase, d.Name, sent)
		}
		return nil
	})
}

// tripsOfDuplicates counts those of requests that come while the first one is
// still being worked on.
func (b *bench) tripsOfDuplicates(ctx context.Context, srv *server, d web.Desk) error {
	if err := srv.flush(ctx); err != nil {
		return err
	}
	const user, key = 7, 7
	begun, end := make(chan struct{}), make(chan struct{})
	work := func() {
		close(begun) // panics if a duplicate gets here
		<-end
	}
	return b.visit(ctx, srv, d, closedConns+1, work, func(c *clients) (err error) {
		first := make(chan error, 1)
		go func() { first <- c.post(closedConns, user, key, http.StatusCreated) }()
		select {
		case <-begun:
		case err := <-first:
			return fmt.Errorf("the first request ended before its duplicates: %w", err)
		}
		defer func() {
			close(end)
			err = errors.Join(err, <-first)
		}()
		sent, err := srv.monitor(ctx, func() error {
			_, err := load.Times(ctx, closedConns, counted, func(_ context.Context, caller, _ int) error {
				return c.post(caller, user, key, http.StatusConflict)
			})
			return err
		})
		if err != nil {
			return err
		}
		b.addTrips(TripsOfDuplicate, d.Name, sent)
		return nil
	})
}
