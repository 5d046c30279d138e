package campaign_test

import (
	"context"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/pgproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// process is one process of the shop. It has its own network, which is cut when it
// ends, so that no later packet of it reaches the server.
type process struct {
	w      *shop
	faults *faults
	proxy  *pgproxy.Proxy
	pool   *pgxpool.Pool
	store  *pgstore.Store
	locker *lock.Locker
}

// Open is part of [once.Shop].
func (w *shop) Open(r *mathrand.Rand) once.Process {
	p := &process{w: w}
	f := newFaults(&w.Faults, w.Over, r)
	p.faults, p.proxy = f, pgproxy.Start(w.t, w.upstream, f.decide)
	url := p.proxy.URL(w.db, "postgres")
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(w.t, err)
	cfg.MaxConns = 4
	if w.bounced {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	p.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(w.t.Context()), cfg)
	require.NoError(w.t, err)
	p.store = pgstore.New(p.pool)
	var store lock.Store = &watched{Store: p.store, paths: &w.Paths, faults: f}
	if w.broken != nil {
		store = w.broken(p.store, p.pool)
	}
	p.locker = lock.New(store, lock.WithTransaction(), lock.WithLease(lease), lock.WithBudget(budget),
		lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithKeep(time.Hour))
	return p
}

// Kill is part of [once.Process].
func (p *process) Kill() { p.proxy.Close() }

// Close is part of [once.Process].
func (p *process) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*lease)
	defer cancel()
	_ = p.locker.Close(ctx)
	p.proxy.Close()
	p.store.Close()
	p.pool.Close()
}

// Order is part of [once.Process].
func (p *process) Order(ctx context.Context, o *once.Order) (reply once.Reply) {
	odds := 10
	if p.w.broken != nil {
		odds = 3 // a twin that trusts its lease fails only here
	}
	slow := !p.w.Over() && o.Dice.IntN(odds) == 0
	fails, repeatable := o.Dice.IntN(30) == 0, o.Dice.IntN(2) == 0
	reply.Receipt, reply.Replayed, reply.Err = p.locker.Once(ctx, o.Name, nil, func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, lease+budget)
		defer cancel()
		reply.Ran = true
		tx, ok := txOf(ctx)
		if !ok {
			return nil, errors.New("no transaction")
		}
		if repeatable {
			if _, err := tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
				return nil, err
			}
		}
		if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1, $2)", o.Name, o.Answer); err != nil {
			return nil, err
		}
		if slow {
			p.w.Faults.Add("work: longer than a lease")
			p.faults.dropRenewals(true)
			time.Sleep(lease + lease/4)
			p.faults.dropRenewals(false)
			if repeatable {
				return o.Answer, nil // even if it was lost meanwhile
			}
		}
		if fails {
			return nil, errors.New("the work failed")
		}
		return o.Answer, nil
	})
	return reply
}
