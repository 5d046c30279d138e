package main

import (
	"context"
	"io"
	"time"
)

// Run is run, for tests that are clients of the desk.
var Run = run

// Orders is the table behind the desk, for what no client can bring about.
type Orders struct{ table orders }

func NewOrders() Orders { return Orders{newMemoryOrders()} }

func (o Orders) Place(ctx context.Context, user string, fence int64) error {
	_, err := o.table.place(ctx, order{User: user, SKU: "tea", Quantity: 1}, fence, true)
	return err
}

func (o Orders) Count(ctx context.Context, user string) (int, error) {
	all, err := o.table.of(ctx, user)
	return len(all), err
}

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
