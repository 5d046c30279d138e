package shop

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// latch is this library with its defaults: a claim, and a receipt in the order's
// transaction.
type latch struct {
	store  *pgstore.Store
	locker *lock.Locker
	insert func(ctx context.Context) ([]byte, error)
	pool   *pgxpool.Pool
	db     *sql.DB // nil with pgx alone
}

func openLatch(ctx context.Context, t Target) (Shop, error) {
	pool, err := openPool(ctx, t)
	if err != nil {
		return nil, err
	}
	return open(ctx, t, &latch{store: pgstore.New(pool), pool: pool, insert: func(ctx context.Context) ([]byte, error) {
		tx, _ := pgstore.Tx(ctx)
		return inserted(tx.QueryRow(ctx, insertOrder, customer, sku, quantity))
	}})
}

func openLatchSQL(ctx context.Context, t Target) (Shop, error) {
	db, pool, err := openSQL(ctx, t)
	if err != nil {
		return nil, err
	}
	return open(ctx, t, &latch{store: pgstore.NewSQL(db), pool: pool, db: db, insert: func(ctx context.Context) ([]byte, error) {
		tx, _ := pgstore.SQLTx(ctx)
		return inserted(tx.QueryRowContext(ctx, insertOrder, customer, sku, quantity))
	}})
}

// openSQL connects by package database/sql, with a pool of so many connections that are
// kept. That of pgx has only made the table.
func openSQL(ctx context.Context, t Target) (*sql.DB, *pgxpool.Pool, error) {
	pool, err := openPool(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	db := stdlib.OpenDB(*pool.Config().ConnConfig)
	db.SetMaxOpenConns(t.Pool)
	db.SetMaxIdleConns(t.Pool)
	return db, pool, nil
}

func open(ctx context.Context, t Target, l *latch) (Shop, error) {
	l.locker = lock.New(l.store, lock.WithTransaction(), lock.WithLease(Lease), lock.WithKeep(cmp.Or(t.Keep, Retention)))
	if err := l.store.Migrate(ctx); err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	return l, nil
}

func (l *latch) Order(ctx context.Context, key string) error {
	_, replayed, err := l.locker.Once(ctx, key, nil, l.insert)
	if err == nil && replayed {
		err = errReplayed
	}
	return err
}

func (l *latch) Keep(ctx context.Context, key string) error { return l.Order(ctx, key) }

func (l *latch) Replay(ctx context.Context, key string) error {
	_, replayed, err := l.locker.Once(ctx, key, nil, l.insert)
	if err == nil && !replayed {
		err = errNoReplay
	}
	return err
}

// Claim implements Claimer.
func (l *latch) Claim(ctx context.Context, key string) error {
	token := rand.Text()
	e, err := l.store.Claim(ctx, keytext.Record(key), lock.Claim{Token: token, Attempt: 1, Owner: "a-host-name:12345", Lease: Lease})
	if err == nil && e.Token != token {
		err = errReplayed
	}
	return err
}

func (l *latch) Close(ctx context.Context) (err error) {
	err = l.locker.Close(ctx)
	l.store.Close()
	l.pool.Close()
	if l.db != nil {
		err = errors.Join(err, l.db.Close())
	}
	return err
}
