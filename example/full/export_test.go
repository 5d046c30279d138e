package main

import (
	"context"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Prefix begins the names of the desk's entries in a store.
const Prefix = prefix

// Run is run, for tests that are clients of the desk.
var Run = run

// Orders is the table behind the desk, for what no client can bring about.
type Orders struct{ table orders }

// NewOrders returns an empty table.
func NewOrders() Orders { return Orders{newMemoryOrders()} }

// Place places an order of user under fence.
func (o Orders) Place(ctx context.Context, user string, fence int64) error {
	_, err := o.table.place(ctx, order{User: user, SKU: "tea", Quantity: 1}, fence, true)
	return err
}

// Count is how many orders user has.
func (o Orders) Count(ctx context.Context, user string) (int, error) {
	all, err := o.table.of(ctx, user)
	return len(all), err
}

// ErrOvertaken is the refusal of an old fence.
var ErrOvertaken = errOvertaken

// RunImpatient is run with other timeouts than the defaults.
func RunImpatient(ctx context.Context, args []string, read, drain time.Duration, stdout, stderr io.Writer) error {
	cfg, err := parseConfig(args, func(string) string { return "" }, stderr)
	if err != nil {
		return err
	}
	cfg.readTimeout, cfg.drain = read, drain
	return cfg.run(ctx, stdout, stderr)
}

// MakeOrders makes the tables of the orders, as a desk does that starts.
func MakeOrders(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := newTableOrders(ctx, pool)
	return err
}

// What makes the tables, and the statement that two desks which start at once wait for.
const (
	OrdersSchema = ordersSchema
	SchemaLock   = schemaLock
)
