package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// jobsSchema makes the table of the accepted orders. A row is committed with its 202, and deleted
// in the commit of its order.
const jobsSchema = `
CREATE TABLE IF NOT EXISTS order_jobs (
	id       text        PRIMARY KEY,
	customer text        NOT NULL,
	sku      text        NOT NULL,
	quantity integer     NOT NULL,
	ticket   text        NOT NULL,
	due      timestamptz NOT NULL DEFAULT now()
);`

func (t *tableOrders) accept(ctx context.Context, j job) error {
	_, err := t.in(ctx).Exec(ctx, `INSERT INTO order_jobs (id, customer, sku, quantity, ticket) VALUES ($1, $2, $3, $4, $5)`,
		j.ID, j.User, j.SKU, j.Quantity, j.ticket)
	return err
}

func (t *tableOrders) next(ctx context.Context) (j job, ok bool, err error) {
	err = t.pool.QueryRow(ctx, `UPDATE order_jobs SET due = now() + $1::interval
		WHERE id = (SELECT id FROM order_jobs WHERE due <= now() ORDER BY due LIMIT 1 FOR UPDATE SKIP LOCKED)
		RETURNING id, customer, sku, quantity, ticket`, redelivery).Scan(&j.ID, &j.User, &j.SKU, &j.Quantity, &j.ticket)
	if errors.Is(err, pgx.ErrNoRows) {
		return job{}, false, nil
	}
	return j, err == nil, err
}

func (t *tableOrders) accepted(ctx context.Context, id string) (o order, err error) {
	err = t.pool.QueryRow(ctx, `SELECT id, customer, sku, quantity FROM order_jobs WHERE id = $1`, id).
		Scan(&o.ID, &o.User, &o.SKU, &o.Quantity)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoOrder
	}
	return o, err
}

func (t *tableOrders) done(ctx context.Context, id string) error {
	_, err := t.in(ctx).Exec(ctx, `DELETE FROM order_jobs WHERE id = $1`, id)
	return err
}
