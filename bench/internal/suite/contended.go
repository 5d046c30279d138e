package suite

import (
	"context"
	"errors"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
)

// Contended is the part in which everybody wants one key, which somebody has:
// how many duplicates are refused in a second.
const Contended = "contended"

// Cases of Contended. In the second the holder is one more process.
const (
	OneProcess    = "64 callers of the holder's process"
	FourProcesses = "64 callers of 4 other processes"
)

const contenders, processes = 64, 4

const contendedKey = "user=42"

func measureContended(ctx context.Context, b *bench) error {
	srv, peers := b.server(), peer.All()
	type cell struct {
		p     peer.Peer
		among int
	}
	var cells []cell
	for _, p := range peers {
		cells = append(cells, cell{p, 1}, cell{p, processes})
	}
	return b.rounds(ctx, len(cells), func(i int) error {
		c := cells[i]
		if err := srv.flush(ctx); err != nil {
			return err
		}
		return b.use(ctx, c.p, srv.addr, func(l peer.Locker) (err error) {
			held, err := l.Acquire(ctx, contendedKey)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, held.Release(ctx)) }()
			if c.among == 1 {
				r, err := b.closed(ctx, contenders, refusals(l))
				if err != nil {
					return err
				}
				b.addTimes(OneProcess, c.p.Name, r)
				return nil
			}
			rate, err := b.refusedAmong(ctx, srv, c.p)
			if err != nil {
				return err
			}
			b.add(FourProcesses, c.p.Name, Rate, rate)
			return nil
		})
	})
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

// refusedAmong lets other processes ask, all at once.
func (b *bench) refusedAmong(ctx context.Context, srv *server, p peer.Peer) (rate float64, err error) {
	crew, err := hire(ctx, processes, job{
		Kind: jobRefusals, Peer: p.Name, Addr: srv.addr, Pool: b.Pool,
		Callers: contenders / processes, Window: b.Window,
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, crew.dismiss()) }()
	reports, err := crew.run()
	for _, r := range reports {
		rate += r.Rate
	}
	return rate, err
}
