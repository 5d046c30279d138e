package suite

import (
	"context"
	"errors"
	"time"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// Scripts is the part that compares the server's own compare-and-act with scripts, on the
// server that REDIS_SERVER names: it needs Valkey 9.0 or Redis 8.4. Cases are those of
// CallersCase, and Renewals.
const Scripts = "scripts"

// Renewals are of 256 callers, each of its own lease.
const Renewals = "renewals"

const scriptCallers = 256

func measureScripts(ctx context.Context, b *bench) error {
	srv, peers := b.server(), peer.Compared()
	sent, err := b.cycleCommands(ctx, srv, peers)
	if err != nil {
		return err
	}
	return b.rounds(ctx, len(peers), func(i int) error {
		if err := b.measureCycle(ctx, srv, peers[i], scriptCallers, sent[i]); err != nil {
			return err
		}
		if peers[i].Name == peer.AutoPipelined {
			return nil
		}
		return b.measureRenewals(ctx, srv, peers[i].Name)
	})
}

var errNotRenewed = errors.New("bench: a lease was not renewed")

func (b *bench) measureRenewals(ctx context.Context, srv *server, who string) error {
	client := peer.NewClient(peer.Target{Addr: srv.addr, Pool: b.Pool})
	defer func() { _ = client.Close() }()
	store := redisstore.New(client)
	defer func() { _ = store.Close() }()
	var renewing lock.Store = store
	if who == peer.Scripted {
		renewing = peer.ByToken{Store: store}
	}
	if err := srv.flush(ctx); err != nil {
		return err
	}
	key := keys(scriptCallers)
	claim := lock.Claim{Token: "t", Attempt: 1, Owner: "bench", Lease: time.Minute, Longest: true}
	for caller := range scriptCallers {
		if _, err := store.Claim(ctx, key(caller, 0), claim); err != nil {
			return err
		}
	}
	op := func(ctx context.Context, caller, _ int) error {
		ok, err := renewing.Renew(ctx, key(caller, 0), claim)
		if err == nil && !ok {
			err = errNotRenewed
		}
		return err
	}
	if _, err := load.Closed(ctx, scriptCallers, b.Window/5, op); err != nil {
		return err
	}
	r, err := b.charged(ctx, srv, Renewals, who, nil, func() (load.Result, error) { return load.Closed(ctx, scriptCallers, b.Window, op) })
	if err != nil {
		return err
	}
	b.addTimes(Renewals, who, r)
	return nil
}
