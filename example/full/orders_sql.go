package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
)

// sqlOrders are the orders of all desks that share a database of package database/sql.
type sqlOrders struct {
	db *sql.DB
	dialect
}

// dialect has what SQLite and MySQL say differently.
type dialect struct {
	tx     func(ctx context.Context) (*sql.Tx, bool) // returns the transaction that the guard has begun for the request
	tables []string                                  // the statements that make the desk's tables, as ordersSchema does in PostgreSQL
	raise  string                                    // raises a customer's fence
	raised string                                    // returns it, which other transactions cannot raise then
}

// newSQLOrders makes the tables unless they are there.
func newSQLOrders(ctx context.Context, db *sql.DB, d dialect) (*sqlOrders, error) {
	for _, table := range d.tables {
		if _, err := db.ExecContext(ctx, table); err != nil {
			return nil, fmt.Errorf("making the tables of the orders: %w", err)
		}
	}
	return &sqlOrders{db, d}, nil
}

// sqlQuerier is a transaction or a database.
type sqlQuerier interface {
	ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, statement string, args ...any) (*sql.Rows, error)
}

// in returns the transaction that the guard has begun for the request, or the database if there is
// none.
func (t *sqlOrders) in(ctx context.Context) sqlQuerier {
	if tx, ok := t.tx(ctx); ok {
		return tx
	}
	return t.db
}

func (t *sqlOrders) place(ctx context.Context, o order, fence int64, fenced bool) (order, error) {
	o.ID = rand.Text()
	if tx, ok := t.tx(ctx); ok {
		return o, t.insert(ctx, tx, o, fence, fenced)
	}
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return order{}, err
	}
	defer tx.Rollback() //nolint:errcheck // it is committed, or the error is another
	if err := t.insert(ctx, tx, o, fence, fenced); err != nil {
		return order{}, err
	}
	return o, tx.Commit()
}

func (t *sqlOrders) insert(ctx context.Context, tx *sql.Tx, o order, fence int64, fenced bool) error {
	if fenced {
		if _, err := tx.ExecContext(ctx, t.raise, o.User, fence); err != nil {
			return err
		}
		var highest int64
		if err := tx.QueryRowContext(ctx, t.raised, o.User).Scan(&highest); err != nil {
			return err
		}
		if highest > fence {
			return errOvertaken
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

func (t *sqlOrders) pay(ctx context.Context, id string) error {
	err := changesOne(t.in(ctx).ExecContext(ctx, `UPDATE orders SET status = 'paid' WHERE id = ?`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return errNoOrder
	}
	return err
}

func (t *sqlOrders) get(ctx context.Context, id string) (record, error) {
	found, err := t.query(ctx, selectOrders+`WHERE id = ?`, id)
	switch {
	case err != nil:
		return record{}, err
	case len(found) == 0:
		return record{}, errNoOrder
	}
	return found[0], nil
}

func (t *sqlOrders) of(ctx context.Context, user string) ([]record, error) {
	return t.query(ctx, selectOrders+`WHERE customer = ? ORDER BY number`, user)
}

func (t *sqlOrders) query(ctx context.Context, statement string, args ...any) ([]record, error) {
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
