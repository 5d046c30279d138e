package suite

import (
	"context"
	"errors"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
)

// Contended is the part in which all callers want one key, which has a holder:
// how many duplicates are refused in a second.
const Contended = "contended"

// Cases of Contended. In the first this library refuses by itself. In the second
// the holder is one more process, and every caller has its own process:
// callers of one process would be refused there, since the claim of one of them
// is on its way.
const (
	OneProcess    = "64 callers of the holder's process"
	FourProcesses = "1 caller in each of 4 other processes"
)

const contenders, processes = 64, 4

const contendedKey = "user=42"

func measureContended(ctx context.Context, b *bench) error {
	srv, peers := b.server(), peer.All()
	sent, err := b.cycleCommands(ctx, srv, peers)
	if err != nil {
		return err
	}
	measure := []func(ctx context.Context, srv *server, p peer.Peer, sent commands, l peer.Locker) error{b.refusedLocally, b.refusedAmong}
	return b.fewRounds(ctx, len(peers)*len(measure), func(i int) error {
		p, sent, measure := peers[i/len(measure)], sent[i/len(measure)], measure[i%len(measure)]
		if err := srv.flush(ctx); err != nil {
			return err
		}
		return b.use(ctx, p, srv.addr, func(l peer.Locker) (err error) {
			held, err := l.Acquire(ctx, contendedKey)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, held.Release(ctx)) }()
			return measure(ctx, srv, p, sent, l)
		})
	})
}

// refusedLocally measures callers of the holder's process.
func (b *bench) refusedLocally(ctx context.Context, srv *server, p peer.Peer, sent commands, l peer.Locker) error {
	op := refusals(l)
	if _, err := load.Closed(ctx, contenders, b.Window/5, op); err != nil {
		return err
	}
	r, err := b.charged(ctx, srv, OneProcess, p.Name, sent, func() (load.Result, error) {
		return load.Closed(ctx, contenders, b.Window, op)
	})
	if err != nil {
		return err
	}
	b.addTimes(OneProcess, p.Name, r)
	return nil
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

// refusedAmong measures callers of other processes, all at once. Their cost counts from
// when they are ready, so that it is of the times that are not measured too.
func (b *bench) refusedAmong(ctx context.Context, srv *server, p peer.Peer, sent commands, _ peer.Locker) (err error) {
	crew, err := hire(ctx, processes, job{
		Kind: jobRefusals, Peer: p.Name, Addr: srv.addr, Pool: b.Pool, Callers: 1, Window: b.Window,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, crew.dismiss()) }()
	before, err := srv.usage(ctx)
	if err != nil {
		return err
	}
	reports, err := crew.run()
	if err != nil {
		return err
	}
	after, err := srv.usage(ctx)
	if err != nil {
		return err
	}
	rate, times := 0.0, 0
	before.client, after.client, after.mallocs = 0, 0, 0 // it is the workers' that count
	for _, r := range reports {
		rate += r.Rate
		times += r.Times
		after.client += r.CPU
	}
	b.add(FourProcesses, p.Name, Rate, rate)
	b.addCosts(FourProcesses, p.Name, sent, before, after, times)
	return nil
}
