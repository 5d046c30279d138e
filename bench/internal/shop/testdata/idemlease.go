package shop

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/repenguin22/idemlease"
	"github.com/repenguin22/idemlease/pgstore"
)

// lease is idemlease as its documentation says: reserve, and complete the record in the
// order's transaction. Its HTTP half is left out, as that of this library is.
type lease struct {
	db    *sql.DB
	pool  *pgxpool.Pool
	store *pgstore.Store
	opts  idemlease.Options
}

func openIdemlease() func(ctx context.Context, t Target) (Shop, error) {
	return func(ctx context.Context, t Target) (Shop, error) {
		db, pool, err := openSQL(ctx, t)
		if err != nil {
			return nil, err
		}
		l := &lease{db, pool, pgstore.New(db), idemlease.Options{LeaseTTL: Lease, RecordTTL: cmp.Or(t.Keep, Retention)}}
		if _, err := db.ExecContext(ctx, pgstore.Schema(pgstore.DefaultTable)); err != nil {
			return nil, errors.Join(err, l.Close(ctx))
		}
		return l, nil
	}
}

func (l *lease) Order(ctx context.Context, key string) error {
	out, err := idemlease.Begin(ctx, l.store, key, nil, l.opts)
	switch {
	case err != nil:
		return err
	case out.Action == idemlease.Replay:
		return errReplayed
	case out.Action != idemlease.Proceed:
		return fmt.Errorf("shop: idemlease: %v", out.Action)
	}
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	answer, err := inserted(tx.QueryRowContext(ctx, insertOrder, customer, sku, quantity))
	if err == nil {
		var lost bool
		if lost, err = l.store.CompleteTx(ctx, tx, key, out.Token, answer, l.opts.RecordTTL); lost {
			err = errors.New("shop: idemlease: the lease was lost")
		}
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (l *lease) Keep(ctx context.Context, key string) error { return l.Order(ctx, key) }

func (l *lease) Replay(ctx context.Context, key string) error {
	out, err := idemlease.Begin(ctx, l.store, key, nil, l.opts)
	if err == nil && out.Action != idemlease.Replay {
		err = errNoReplay
	}
	return err
}

func (l *lease) Close(context.Context) error {
	l.pool.Close()
	return l.db.Close()
}
