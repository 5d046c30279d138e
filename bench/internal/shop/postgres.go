package shop

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/httplatch/httplatch/lock/pgstore"
)

const (
	createOrders = `CREATE TABLE IF NOT EXISTS orders (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL, sku text NOT NULL, quantity int NOT NULL)`
	insertOrder = `INSERT INTO orders (customer, sku, quantity) VALUES ($1, $2, $3) RETURNING id`
)

func openLatch(ctx context.Context, t Target) (Shop, error) {
	pool, err := openPool(ctx, t)
	if err != nil {
		return nil, err
	}
	l := &latch{store: pgstore.New(pool), close: func() error { pool.Close(); return nil }}
	l.insert = func(ctx context.Context) ([]byte, error) {
		tx, _ := pgstore.Tx(ctx)
		return inserted(tx.QueryRow(ctx, insertOrder, customer, sku, quantity))
	}
	return l.open(ctx, t)
}

func openLatchSQL(ctx context.Context, t Target) (Shop, error) {
	db, pool, err := openSQL(ctx, t)
	if err != nil {
		return nil, err
	}
	l := &latch{store: pgstore.NewSQL(db), close: func() error { pool.Close(); return db.Close() }}
	l.insert = func(ctx context.Context) ([]byte, error) {
		tx, _ := pgstore.SQLTx(ctx)
		return inserted(tx.QueryRowContext(ctx, insertOrder, customer, sku, quantity))
	}
	return l.open(ctx, t)
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

// openPool connects, and makes the table of orders.
func openPool(ctx context.Context, t Target) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(t.URL)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(t.Pool) //nolint:gosec // no pool is that large
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if _, err = pool.Exec(ctx, createOrders); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

type row interface{ Scan(into ...any) error }

// inserted reads the answer of a row of insertOrder.
func inserted(r row) ([]byte, error) {
	var id int64
	if err := r.Scan(&id); err != nil {
		return nil, err
	}
	return answer(id), nil
}

// bare is a transaction as it would be without any idempotency, and, for repeats, a table
// of answers with the key as its primary key.
type bare struct{ pool *pgxpool.Pool }

func openBare(ctx context.Context, t Target) (Shop, error) {
	pool, err := openPool(ctx, t)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS answers (key bytea PRIMARY KEY, answer bytea NOT NULL)`); err != nil {
		pool.Close()
		return nil, err
	}
	return bare{pool}, nil
}

func (b bare) Order(ctx context.Context, _ string) error {
	return b.order(ctx, func(pgx.Tx, []byte) error { return nil })
}

func (b bare) order(ctx context.Context, and func(tx pgx.Tx, answer []byte) error) error {
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		return err
	}
	answer, err := inserted(tx.QueryRow(ctx, insertOrder, customer, sku, quantity))
	if err == nil {
		err = and(tx, answer)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx)
}

func (b bare) Keep(ctx context.Context, key string) error {
	return b.order(ctx, func(tx pgx.Tx, answer []byte) error {
		_, err := tx.Exec(ctx, `INSERT INTO answers (key, answer) VALUES ($1, $2)`, []byte(key), answer)
		return err
	})
}

func (b bare) Replay(ctx context.Context, key string) error {
	var answer []byte
	return b.pool.QueryRow(ctx, `SELECT answer FROM answers WHERE key = $1`, []byte(key)).Scan(&answer)
}

func (b bare) Close(context.Context) error {
	b.pool.Close()
	return nil
}
