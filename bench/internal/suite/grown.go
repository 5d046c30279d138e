package suite

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/shop"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
)

// Cases and whos of orders for which PostgreSQL is not as at other times.
const (
	SerializableCase = "INSERTs under serializable, 8 callers"
	GrownCase        = "first order, 8 callers, 60,000 rows after 60"
	BeforeAnalyze    = "before ANALYZE"
	AfterAnalyze     = "after ANALYZE"

	someBuyers = 8
)

// measureSerializable measures how many orders are aborted that conflict with nothing.
func (b *bench) measureSerializable(ctx context.Context, srv *pgtest.Cluster) error {
	for _, c := range shop.All() {
		s, err := c.Open(ctx, shop.Target{URL: srv.DatabaseURL(b.host) + "&default_transaction_isolation=serializable", Pool: someBuyers})
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		r, err := load.Steady(ctx, someBuyers, b.Window/5, 3*b.Window, func(ctx context.Context, _, _ int) error {
			return s.Order(ctx, newKey())
		}, func() {})
		if err = errors.Join(err, s.Close(context.WithoutCancel(ctx))); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		b.add(SerializableCase, c.Name, NotServed, r.NotServed())
	}
	return nil
}

// grow makes many rows of receipts, as other processes would.
const grow = `INSERT INTO latch_entries SELECT convert_to('other/' || n, 'UTF8'), '', 1, '', '', 0, now() + interval '1 day', 0, '', now() + interval '1 day'
	FROM generate_series(1, 60000) n`

// measureGrown measures orders beside many rows whose statements were planned beside few, and
// again when the server knows how many there are.
func (b *bench) measureGrown(ctx context.Context, srv *pgtest.Cluster) (err error) {
	url := srv.DatabaseURL(b.host)
	s, err := shop.All()[0].Open(ctx, shop.Target{URL: url, Pool: someBuyers})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	order := func(ctx context.Context, _, _ int) error { return s.Order(ctx, newKey()) }
	if _, err = load.Times(ctx, 1, 10, order); err != nil {
		return err
	}
	if _, err = conn.Exec(ctx, `ALTER TABLE latch_entries SET (autovacuum_enabled = off)`); err != nil {
		return err
	}
	if _, err = conn.Exec(ctx, `ANALYZE latch_entries`); err != nil {
		return err
	}
	if _, err = load.Times(ctx, 1, 50, order); err != nil { // which are planned by what ANALYZE has seen
		return err
	}
	if _, err = conn.Exec(ctx, grow); err != nil {
		return err
	}
	for _, who := range []string{BeforeAnalyze, AfterAnalyze} {
		if _, err = load.Closed(ctx, someBuyers, b.Window, order); err != nil { // connections prepare their statements
			return err
		}
		r, err := load.Closed(ctx, someBuyers, 2*b.Window, order)
		if err != nil {
			return err
		}
		b.add(GrownCase, who, Rate, r.Rate())
		if _, err = conn.Exec(ctx, `ANALYZE latch_entries`); err != nil {
			return err
		}
	}
	return nil
}
