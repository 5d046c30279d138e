package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/httplatch/httplatch/lock/pgstore"
)

// ordersSchema makes the desk's tables. The table of the orders has no unique constraint: only
// the guard prevents a second order.
const ordersSchema = `
CREATE TABLE IF NOT EXISTS orders (
	number   bigint GENERATED ALWAYS AS IDENTITY, -- the oldest first
	id       text    NOT NULL,
	customer text    NOT NULL,
	sku      text    NOT NULL,
	quantity integer NOT NULL,
	status   text    NOT NULL DEFAULT 'placed',
	fence    bigint  NOT NULL
);
CREATE INDEX IF NOT EXISTS orders_id ON orders (id);
CREATE INDEX IF NOT EXISTS orders_user ON orders (customer, number);
CREATE TABLE IF NOT EXISTS order_fences (
	customer text   PRIMARY KEY,
	fence    bigint NOT NULL -- the highest seen
);` + jobsSchema

// ordersMissing asks whether ordersSchema has something to make. If not, ordersSchema is not run:
// CREATE INDEX IF NOT EXISTS locks the table before it looks, so it waits for VACUUM and for the
// transactions of a desk that was killed, and all orders would wait behind it.
//
// It reads a catalog and does not use to_regclass, which may remember within a transaction that
// there was no such name.
const ordersMissing = `SELECT count(*) < 5 FROM pg_class
	WHERE relname IN ('orders', 'orders_id', 'orders_user', 'order_fences', 'order_jobs') AND pg_table_is_visible(oid)`

// schemaLock keeps two desks from making the tables at once: CREATE IF NOT EXISTS would fail.
const schemaLock = "SELECT pg_advisory_xact_lock(hashtext('desk:orders'))"

// tableOrders are the orders of all desks that share the database.
type tableOrders struct{ pool *pgxpool.Pool }

// newTableOrders makes the tables unless they are there.
func newTableOrders(ctx context.Context, pool *pgxpool.Pool) (*tableOrders, error) {
	missing, err := lacksTables(ctx, pool)
	if err == nil && missing {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, schemaLock); err != nil {
				return err
			}
			if missing, err := lacksTables(ctx, tx); err != nil || !missing {
				return err // another desk has made them meanwhile
			}
			_, err := tx.Exec(ctx, ordersSchema)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("making the table of the orders: %w", err)
	}
	return &tableOrders{pool}, nil
}

// lacksTables reports whether a table or an index is missing.
func lacksTables(ctx context.Context, db querier) (missing bool, err error) {
	rows, err := db.Query(ctx, ordersMissing)
	if err != nil {
		return false, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
}

// querier is a transaction or a pool.
type querier interface {
	Exec(ctx context.Context, statement string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error)
}

// in returns the transaction that the guard has begun for the request, which is committed with its
// answer, or the pool if there is none: under a lock, or without a guard.
func (t *tableOrders) in(ctx context.Context) querier {
	if tx, ok := pgstore.Tx(ctx); ok {
		return tx
	}
	return t.pool
}

func (t *tableOrders) place(ctx context.Context, o order, fence int64, fenced bool) (order, error) {
	if o.ID == "" {
		o.ID = rand.Text()
	}
	if tx, ok := pgstore.Tx(ctx); ok {
		return o, insertOrder(ctx, tx, o, fence, fenced)
	}
	return o, pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error { return insertOrder(ctx, tx, o, fence, fenced) })
}

func insertOrder(ctx context.Context, tx pgx.Tx, o order, fence int64, fenced bool) error {
	if fenced {
		tag, err := tx.Exec(ctx, `INSERT INTO order_fences AS seen (customer, fence) VALUES ($1, $2)
			ON CONFLICT (customer) DO UPDATE SET fence = excluded.fence WHERE seen.fence <= excluded.fence`, o.User, fence)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errOvertaken
		}
	}
	_, err := tx.Exec(ctx, `INSERT INTO orders (id, customer, sku, quantity, fence) VALUES ($1, $2, $3, $4, $5)`,
		o.ID, o.User, o.SKU, o.Quantity, fence)
	return err
}

func (t *tableOrders) pay(ctx context.Context, id string) error {
	tag, err := t.in(ctx).Exec(ctx, `UPDATE orders SET status = 'paid' WHERE id = $1`, id)
	if err == nil && tag.RowsAffected() == 0 {
		err = errNoOrder
	}
	return err
}

const selectOrders = `SELECT id, customer, sku, quantity, status, fence FROM orders `

func (t *tableOrders) get(ctx context.Context, id string) (record, error) {
	rows, err := t.in(ctx).Query(ctx, selectOrders+`WHERE id = $1`, id)
	if err != nil {
		return record{}, err
	}
	found, err := pgx.CollectOneRow(rows, scanRecord)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoOrder
	}
	return found, err
}

func (t *tableOrders) of(ctx context.Context, user string) ([]record, error) {
	rows, err := t.in(ctx).Query(ctx, selectOrders+`WHERE customer = $1 ORDER BY number`, user)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, scanRecord)
	return append([]record{}, all...), err
}

func scanRecord(row pgx.CollectableRow) (r record, err error) {
	err = row.Scan(&r.ID, &r.User, &r.SKU, &r.Quantity, &r.Status, &r.Fence)
	return r, err
}
