package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/shop"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
)

// Transactions is the part in which orders are inserted exactly once, and their answers
// replayed, beside a transaction that knows nothing of that. It needs PostgreSQL.
const Transactions = "transactions"

// Buyers are how many callers there are at once.
var Buyers = []int{1, 8, 32}

// FirstCase names the case of orders.
func FirstCase(callers int) string { return fmt.Sprintf("first order, %d callers", callers) }

// SlowCase names the case of orders on a slower disk.
func SlowCase(callers int) string {
	return fmt.Sprintf("first order, a flush takes 1 ms more, %d callers", callers)
}

// ReplayCase names the case of replays.
func ReplayCase(callers int) string { return fmt.Sprintf("replay, %d callers", callers) }

// slowFlushes are settings with which the server waits for a millisecond before it flushes
// what was committed, together with all that is committed meanwhile. That is what a disk
// over a network does.
const slowFlushes = "&commit_delay=1000&commit_siblings=0"

// SelectOfAnswer is what shop.Bare is called where it replays.
const SelectOfAnswer = "SELECT by primary key"

const (
	buyersPool = 32 // connections of each contender
	replayKeys = 64 // of each caller
)

// ServerSettings are those that a server has unless set otherwise, except
// max_connections, since all contenders have their pools at once. Tests have others.
var ServerSettings = []string{
	"fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=128MB", "max_wal_size=1GB", "max_connections=300",
}

// startPostgres starts a server of the part.
func (b *bench) startPostgres(settings ...string) *pgtest.Cluster {
	settings = append(append([]string(nil), ServerSettings...), settings...)
	b.log("PostgreSQL with %s", strings.Join(settings, ", "))
	return pgtest.Start(b.host, settings...)
}

// newKey is one that no caller has had, and in no order, like the UUIDs of clients.
func newKey() string { return fmt.Sprintf("user=1&key=%016x%016x", rand.Uint64(), rand.Uint64()) } //nolint:gosec // not a secret

func measureTransactions(ctx context.Context, b *bench) (err error) {
	srv, all := b.startPostgres(), shop.All()
	kept := make([]string, replayKeys*Buyers[len(Buyers)-1])
	for i := range kept {
		kept[i] = newKey()
	}
	if b.meter, err = meterPostgres(ctx, srv.DatabaseURL(b.host)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.meter.close(ctx)) }()
	var fast, slow []shop.Shop
	urls := map[string]string{}
	defer func() {
		for _, s := range append(fast, slow...) {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	for _, c := range all {
		for to, settings := range map[*[]shop.Shop]string{&fast: "", &slow: slowFlushes} {
			url := srv.DatabaseURL(b.host)
			if settings == "" {
				urls[c.Name] = url
			}
			s, err := c.Open(ctx, shop.Target{URL: url + settings, Pool: buyersPool})
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			*to = append(*to, s)
			if err := stock(ctx, s, kept); err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
		}
	}
	err = b.rounds(ctx, 1, func(int) error {
		for _, callers := range Buyers {
			err := errors.Join(
				b.measureFirst(ctx, FirstCase(callers), callers, fast),
				b.measureFirst(ctx, SlowCase(callers), callers, slow),
				b.measureReplay(ctx, callers, fast, kept))
			if err != nil {
				return err
			}
		}
		return errors.Join(b.measureSerializable(ctx, srv), b.measureGrown(ctx, srv))
	})
	if err != nil {
		return err
	}
	percent, err := heapOnly(ctx, urls[shop.Ours], "latch_entries")
	b.add(FirstCase(Buyers[0]), shop.Ours, HeapOnly, percent)
	return err
}

// measureFirst measures orders in every shop once.
func (b *bench) measureFirst(ctx context.Context, kase string, callers int, shops []shop.Shop) error {
	return b.shuffled(ctx, len(shops), func(i int) error {
		op := func(ctx context.Context, _, _ int) error { return shops[i].Order(ctx, newKey()) }
		return b.measureShop(ctx, kase, shop.All()[i].Name, callers, op)
	})
}

// measureReplay measures replays in every shop once.
func (b *bench) measureReplay(ctx context.Context, callers int, shops []shop.Shop, kept []string) error {
	return b.shuffled(ctx, len(shops), func(i int) error {
		who := shop.All()[i].Name
		if who == shop.Bare {
			who = SelectOfAnswer
		}
		op := func(ctx context.Context, caller, n int) error {
			return shops[i].Replay(ctx, kept[caller*replayKeys+n%replayKeys])
		}
		return b.measureShop(ctx, ReplayCase(callers), who, callers, op)
	})
}

// stock keeps the answers that are replayed, and has every connection opened, a few at a
// time, and its statements prepared.
func stock(ctx context.Context, s shop.Shop, kept []string) error {
	_, err := load.Times(ctx, 2, len(kept), func(ctx context.Context, caller, n int) error { return s.Keep(ctx, kept[2*n+caller]) })
	if err != nil {
		return err
	}
	_, err = load.Closed(ctx, buyersPool, 2*time.Second, func(ctx context.Context, caller, _ int) error {
		return errors.Join(s.Replay(ctx, kept[caller%len(kept)]), s.Order(ctx, newKey()))
	})
	return err
}

// measureShop measures one contender once.
func (b *bench) measureShop(ctx context.Context, kase, who string, callers int, op load.Op) error {
	if _, err := load.Closed(ctx, callers, b.Window/5, op); err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	before, err := b.spending(ctx)
	if err != nil {
		return err
	}
	r, err := load.Closed(ctx, callers, b.Window, op)
	if err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	after, err := b.spending(ctx)
	if err != nil {
		return err
	}
	b.addTimes(kase, who, r)
	each := func(metric string, all float64) { b.add(kase, who, metric, all/float64(max(1, len(r.Took)))) }
	each(ClientCPU, after.client-before.client)
	if b.meter != nil {
		each(WAL, after.wal-before.wal)
		each(CPU, after.server-before.server)
	}
	return nil
}
