package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/shop"
)

// Receipts is the part that shows what so many kept receipts take in PostgreSQL, and what
// a claim, an order and a replay cost beside them.
const Receipts = "receipts"

// Metrics of Receipts.
const (
	TableBytes = "table, bytes a receipt"
	KeyBytes   = "index of keys, bytes a receipt"
	SweepBytes = "index of the clean-up, bytes a receipt"
)

// Whos of Receipts.
const (
	JustClaims = "claim"
	Orders     = "first order"
	Replays    = "replay"
)

// ReceiptsCase names the case.
func ReceiptsCase(n int) string { return fmt.Sprintf("%d receipts, 1 caller", n) }

// stocked is a shop with so many receipts, and some of their keys.
type stocked struct {
	shop shop.Shop
	kept []string
	n    int
}

func measureReceipts(ctx context.Context, b *bench) (err error) {
	srv, ours := b.startPostgres(), shop.All()[0]
	var all []stocked
	defer func() {
		for _, s := range all {
			err = errors.Join(err, s.shop.Close(context.WithoutCancel(ctx)))
		}
	}()
	for _, n := range b.Receipts {
		b.log("leaving %d receipts", n)
		url := srv.DatabaseURL(b.host)
		s, err := ours.Open(ctx, shop.Target{URL: url, Pool: buyersPool})
		if err != nil {
			return err
		}
		all = append(all, stocked{shop: s, n: n})
		if all[len(all)-1].kept, err = leave(ctx, ours, url, n); err != nil {
			return err
		}
		if err := b.addSizes(ctx, url, n); err != nil {
			return err
		}
	}
	type measured struct {
		in  stocked
		who string
		op  load.Op
	}
	var ops []measured
	for _, s := range all {
		claimer, ok := s.shop.(shop.Claimer)
		if !ok {
			return fmt.Errorf("%s does not claim", ours.Name)
		}
		ops = append(ops,
			measured{s, JustClaims, func(ctx context.Context, _, _ int) error { return claimer.Claim(ctx, newKey()) }},
			measured{s, Orders, func(ctx context.Context, _, _ int) error { return s.shop.Order(ctx, newKey()) }},
			measured{s, Replays, func(ctx context.Context, _, _ int) error { return s.shop.Replay(ctx, s.kept[rand.IntN(len(s.kept))]) }}) //nolint:gosec // not a secret
	}
	return b.fewRounds(ctx, len(ops), func(i int) error {
		return b.measureShop(ctx, ReceiptsCase(ops[i].in.n), ops[i].who, 1, ops[i].op)
	})
}

// leave has n orders made by a shop of its own, which does not wait for the disk, and
// returns their keys.
func leave(ctx context.Context, c shop.Contender, url string, n int) (kept []string, err error) {
	s, err := c.Open(ctx, shop.Target{URL: url + "&synchronous_commit=off", Pool: buyersPool})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	kept = make([]string, n)
	for i := range kept {
		kept[i] = newKey()
	}
	_, err = load.Times(ctx, fillers, n, func(ctx context.Context, caller, i int) error {
		for try := 1; ; try++ { // a busy machine may not answer in time
			err := s.Keep(ctx, kept[i*fillers+caller])
			if err == nil || try == 5 {
				return err
			}
		}
	})
	return kept, err
}

const fillers = 8

// addSizes notes what is in the database, with what the orders have left dead.
func (b *bench) addSizes(ctx context.Context, url string, n int) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var table, keys, sweep, rows float64
	err = conn.QueryRow(ctx, `SELECT pg_table_size('latch_entries')::float8, pg_relation_size('latch_entries_pkey')::float8,
		pg_relation_size('latch_entries_sweep_at')::float8, (SELECT count(*) FROM latch_entries)::float8`).Scan(&table, &keys, &sweep, &rows)
	if err != nil {
		return err
	}
	if rows < float64(n) {
		return fmt.Errorf("%v rows of %d receipts", rows, n)
	}
	for metric, bytes := range map[string]float64{TableBytes: table, KeyBytes: keys, SweepBytes: sweep} {
		b.add(ReceiptsCase(n), Orders, metric, bytes/rows)
	}
	return nil
}
