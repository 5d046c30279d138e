package campaign_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// process is one process of the shop. It has its own network, which is cut when it
// ends, so that no later packet of it reaches the server.
type process struct {
	c      *campaign
	r      *mathrand.Rand
	faults *faults
	proxy  *pgproxy.Proxy
	pool   *pgxpool.Pool
	store  *pgstore.Store
	locker *lock.Locker
}

// process lives, orders, dies and lives again, until there are no more faults and every
// order that it has begun is answered.
func (c *campaign) process(ctx context.Context, r *mathrand.Rand) {
	pending := "" // what the client of a dead process asks for again
	for ctx.Err() == nil {
		p := c.spawn(r)
		for range 20 + r.IntN(60) {
			if c.over() && pending == "" {
				p.end(ctx)
				return
			}
			if pending == "" {
				pending = c.pick(r)
			}
			if p.order(ctx, pending) {
				pending = ""
			}
		}
		if r.IntN(2) == 0 && !c.over() {
			c.faults.add("process: killed")
			dice := mathrand.New(mathrand.NewPCG(r.Uint64(), r.Uint64()))
			go p.orderInVain(ctx, c.pick(r), dice) // in the middle of something
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			p.proxy.Close()
		}
		p.end(ctx)
	}
}

func (c *campaign) spawn(r *mathrand.Rand) *process {
	p := &process{c: c, r: r}
	f := newFaults(&c.faults, c.over, r)
	p.faults, p.proxy = f, pgproxy.Start(c.t, c.upstream, f.decide)
	url := p.proxy.URL(c.db, "postgres")
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(c.t, err)
	cfg.MaxConns = 4
	if c.bounced {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	p.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(c.t.Context()), cfg)
	require.NoError(c.t, err)
	p.store = pgstore.New(p.pool)
	var store lock.Store = &watched{Store: p.store, paths: &c.paths, faults: f}
	if c.broken != nil {
		store = c.broken(p.store, p.pool)
	}
	p.locker = lock.New(store, lock.WithTransaction(), lock.WithLease(lease), lock.WithBudget(budget),
		lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithKeep(time.Hour))
	return p
}

// end gives up what a process has in this one.
func (p *process) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*lease)
	defer cancel()
	_ = p.locker.Close(ctx)
	p.proxy.Close()
	p.store.Close()
	p.pool.Close()
}

// order orders once, and reports whether there was an answer.
func (p *process) order(ctx context.Context, name string) bool {
	receipt, replayed, err := p.once(ctx, name, p.r)
	switch {
	case err == nil && replayed:
		p.c.answers.add("repeated")
	case err == nil:
		p.c.answers.add("first")
	case errors.Is(err, lock.ErrAbandoned):
		p.c.complain("%s: its outcome is said to be unknown", name)
		return true
	default:
		time.Sleep(time.Duration(5+p.r.IntN(50)) * time.Millisecond)
		return false
	}
	p.c.gets(name, receipt)
	return true
}

func (p *process) orderInVain(ctx context.Context, name string, r *mathrand.Rand) {
	_, _, _ = p.once(ctx, name, r) // its client has gone with it
}

func (p *process) once(ctx context.Context, name string, r *mathrand.Rand) (receipt []byte, replayed bool, err error) {
	slow := !p.c.over() && r.IntN(10) == 0
	fails, repeatable := r.IntN(30) == 0, r.IntN(2) == 0
	var answer []byte
	receipt, replayed, err = p.locker.Once(ctx, name, nil, func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, lease+budget)
		defer cancel()
		answer = fmt.Appendf(nil, "%s %s", name, rand.Text())
		tx, ok := txOf(ctx)
		if !ok {
			return nil, errors.New("no transaction")
		}
		if repeatable {
			if _, err := tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
				return nil, err
			}
		}
		if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1, $2)", name, answer); err != nil {
			return nil, err
		}
		if slow {
			p.c.faults.add("work: longer than a lease")
			p.faults.dropRenewals(true)
			time.Sleep(lease + lease/4)
			p.faults.dropRenewals(false)
			if repeatable {
				return answer, nil // even if it was lost meanwhile
			}
		}
		if fails {
			return nil, errors.New("the work failed")
		}
		return answer, nil
	})
	if answer != nil && errors.Is(err, lock.ErrNotApplied) {
		p.c.denies(answer)
	}
	return receipt, replayed, err
}
