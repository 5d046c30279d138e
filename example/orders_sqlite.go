package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"

	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// fileSchema makes the desk's tables in a file, as ordersSchema does in PostgreSQL.
const fileSchema = `
CREATE TABLE IF NOT EXISTS orders (
	number   INTEGER PRIMARY KEY AUTOINCREMENT, -- the oldest first
	id       TEXT    NOT NULL,
	customer TEXT    NOT NULL,
	sku      TEXT    NOT NULL,
	quantity INTEGER NOT NULL,
	status   TEXT    NOT NULL DEFAULT 'placed',
	fence    INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS orders_id ON orders (id);
CREATE INDEX IF NOT EXISTS orders_user ON orders (customer, number);
CREATE TABLE IF NOT EXISTS order_fences (
	customer TEXT    PRIMARY KEY,
	fence    INTEGER NOT NULL -- the highest seen
);`

// fileOrders are the orders of all desks that share a file of SQLite.
type fileOrders struct{ db *sql.DB }

// newFileOrders makes the tables unless they are there.
func newFileOrders(ctx context.Context, db *sql.DB) (*fileOrders, error) {
	if _, err := db.ExecContext(ctx, fileSchema); err != nil {
		return nil, fmt.Errorf("making the table of the orders: %w", err)
	}
	return &fileOrders{db}, nil
}

// sqlQuerier is a transaction or a database.
type sqlQuerier interface {
	ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, statement string, args ...any) (*sql.Rows, error)
}

// in returns the transaction that the guard has begun for the request, or the database if there is
// none.
func (t *fileOrders) in(ctx context.Context) sqlQuerier {
	if tx, ok := sqlitestore.Tx(ctx); ok {
		return tx
	}
	return t.db
}

func (t *fileOrders) place(ctx context.Context, o order, fence int64, fenced bool) (order, error) {
	o.ID = rand.Text()
	if tx, ok := sqlitestore.Tx(ctx); ok {
		return o, insertFileOrder(ctx, tx, o, fence, fenced)
	}
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return order{}, err
	}
	defer tx.Rollback() //nolint:errcheck // it is committed, or the error is another
	if err := insertFileOrder(ctx, tx, o, fence, fenced); err != nil {
		return order{}, err
	}
	return o, tx.Commit()
}

func insertFileOrder(ctx context.Context, tx *sql.Tx, o order, fence int64, fenced bool) error {
	if fenced {
		err := changesOne(tx.ExecContext(ctx, `INSERT INTO order_fences AS seen (customer, fence) VALUES (?, ?)
			ON CONFLICT (customer) DO UPDATE SET fence = excluded.fence WHERE seen.fence <= excluded.fence`, o.User, fence))
		if errors.Is(err, sql.ErrNoRows) {
			return errOvertaken
		} else if err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO orders (id, customer, sku, quantity, fence) VALUES (?, ?, ?, ?, ?)`,
		o.ID, o.User, o.SKU, o.Quantity, fence)
	return err
}

// changesOne returns sql.ErrNoRows for a statement that has changed no row.
func changesOne(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		return sql.ErrNoRows
	}
	return err
}

func (t *fileOrders) pay(ctx context.Context, id string) error {
	err := changesOne(t.in(ctx).ExecContext(ctx, `UPDATE orders SET status = 'paid' WHERE id = ?`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return errNoOrder
	}
	return err
}

func (t *fileOrders) get(ctx context.Context, id string) (record, error) {
	found, err := t.query(ctx, selectOrders+`WHERE id = ?`, id)
	switch {
	case err != nil:
		return record{}, err
	case len(found) == 0:
		return record{}, errNoOrder
	}
	return found[0], nil
}

func (t *fileOrders) of(ctx context.Context, user string) ([]record, error) {
	return t.query(ctx, selectOrders+`WHERE customer = ? ORDER BY number`, user)
}

func (t *fileOrders) query(ctx context.Context, statement string, args ...any) ([]record, error) {
	rows, err := t.in(ctx).QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err has its error
	all := []record{}
	for rows.Next() {
		var r record
		if err := rows.Scan(&r.ID, &r.User, &r.SKU, &r.Quantity, &r.Status, &r.Fence); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}
