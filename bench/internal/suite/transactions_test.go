package suite_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/shop"
)

// opened is a contender, its shop, and over PostgreSQL the same on a slower disk.
type opened struct {
	shop.Contender

	fast, slow shop.Shop
	url        string
}

// BenchmarkTransactions measures orders that are inserted exactly once, and their answers
// replayed, beside a transaction that knows nothing of that.
func BenchmarkTransactions(b *testing.B) {
	for _, e := range chosen(b) {
		b.Run("db="+e.flag, func(b *testing.B) { measureTransactions(b, e) })
	}
}

func measureTransactions(b *testing.B, e engine) {
	b.Helper()
	replayKeys := size(64, 2) // of each caller
	db := e.start(b)
	postgres, isPostgres := db.(*onPostgres)
	kept := newKeys(replayKeys * buyersPool)
	var all []opened
	for _, c := range shop.All(e.name) {
		target := db.target(b)
		o := opened{Contender: c, url: target.URL, fast: openShop(b, c, target)}
		stock(b, o.fast, kept)
		if isPostgres {
			o.slow = openShop(b, c, shop.Target{URL: postgres.DatabaseURL(b) + slowFlushes, Pool: buyersPool})
			stock(b, o.slow, kept)
		}
		all = append(all, o)
	}
	turns := func(callers int, op func(o opened) load.Op) []contender {
		return each(all, func(o opened) string { return o.Name }, func(b *testing.B, o opened) { measureShop(b, e, db, callers, op(o)) })
	}
	for round := range *rounds {
		for _, callers := range []int{1, 8, 32} {
			inTurns(b, round, e.name+", order, "+callersCase(callers), turns(callers, func(o opened) load.Op { return ordering(o.fast) }))
			if isPostgres {
				inTurns(b, round, e.name+", order, a flush takes 1 ms more, "+callersCase(callers), turns(callers, func(o opened) load.Op { return ordering(o.slow) }))
			}
			inTurns(b, round, e.name+", replay, "+callersCase(callers), turns(callers, func(o opened) load.Op {
				return func(ctx context.Context, caller, n int) error {
					return o.fast.Replay(ctx, kept[caller*replayKeys+n%replayKeys])
				}
			}))
		}
		if isPostgres {
			inTurns(b, round, e.name+", INSERTs under serializable, 8 callers", each(shop.All(e.name), func(c shop.Contender) string { return c.Name }, postgres.measureSerializable))
			postgres.measureGrown(b, round)
		}
	}
	if isPostgres {
		measure(b, 0, e.name+", all updates", shop.Ours, func(b *testing.B) { reportHeapOnly(b, all[0].url) })
	}
}

// BenchmarkReceipts measures how much room so many kept receipts take, and the cost of a
// claim, an order and a replay beside them.
func BenchmarkReceipts(b *testing.B) {
	for _, e := range chosen(b) {
		b.Run("db="+e.flag, func(b *testing.B) { measureReceipts(b, e) })
	}
}

func measureReceipts(b *testing.B, e engine) {
	b.Helper()
	db, ours := e.start(b), shop.All(e.name)[0]
	contenders := map[string][]contender{}
	for _, receipts := range []int{1000, 1_000_000} {
		n, target, kase := size(receipts, 100), db.target(b), fmt.Sprintf("%s, %d receipts, 1 caller", e.name, receipts)
		s := openShop(b, ours, target)
		claimer, ok := s.(shop.Claimer)
		require.True(b, ok)
		kept := leave(b, ours, db, target, n)
		measure(b, 0, kase, "their room", func(b *testing.B) { db.room(b, target, n) })
		for who, op := range map[string]func(ctx context.Context, i int) error{
			"claim":  func(ctx context.Context, _ int) error { return claimer.Claim(ctx, newKey()) },
			"order":  func(ctx context.Context, _ int) error { return s.Order(ctx, newKey()) },
			"replay": func(ctx context.Context, i int) error { return s.Replay(ctx, kept[i*7919%n]) },
		} {
			contenders[kase] = append(contenders[kase], contender{who, func(b *testing.B) {
				measureShop(b, e, db, 1, func(ctx context.Context, _, i int) error { return op(ctx, i) })
			}})
		}
	}
	for round := range *rounds {
		for kase, all := range contenders {
			inTurns(b, round, kase, all)
		}
	}
}

// leave has n orders made by a shop of its own, which does not wait for the disk, and returns
// their keys.
func leave(b *testing.B, c shop.Contender, db database, target shop.Target, n int) []string {
	b.Helper()
	const fillers, tries = 8, 5
	kept := newKeys(n)
	db.hurried(b, target, func(target shop.Target) {
		s, err := c.Open(b.Context(), target)
		require.NoError(b, err)
		times(b, fillers, n, func(ctx context.Context, caller, i int) (err error) {
			for range tries { // a busy machine may not answer in time
				if err = s.Keep(ctx, kept[i*fillers+caller]); err == nil {
					break
				}
			}
			return err
		})
		require.NoError(b, s.Close(b.Context()))
	})
	return kept
}

var play = flag.Duration("play", time.Minute, "clean-up: how long an hour lasts")

// BenchmarkCleanUp keeps receipts for ten minutes of an hour of traffic, which is played faster. Where
// a store keeps rows that have ended for a while, as many as there are orders become due from the first moment on.
func BenchmarkCleanUp(b *testing.B) {
	for _, e := range chosen(b) {
		b.Run("db="+e.flag, func(b *testing.B) {
			for round := range *rounds {
				measure(b, round, e.name+", an hour of orders", shop.Ours, func(b *testing.B) { measureCleanUp(b, e) })
			}
		})
	}
}

func measureCleanUp(b *testing.B, e engine) {
	b.Helper()
	rate := size(e.rate, 50)
	db := e.start(b)
	target := db.target(b)
	target.Keep = *play / 6
	s := openShop(b, shop.All(e.name)[0], target)
	// No replays: in a short play a receipt expires while others are warmed up, and its key is held again.
	warmUp(b, s, func(context.Context, int) error { return nil })
	db.age(b, target, int(rate*play.Seconds()), time.Duration(float64(time.Second)/rate))
	looking, stop := context.WithCancel(b.Context())
	defer stop()
	looked := make(chan error, 1)
	at, most := db.looker(b, target), look{}
	go func() {
		var err error
		most, err = watch(looking, at, *play/60)
		looked <- err
	}()
	r, err := load.Open(b.Context(), buyersPool, load.Arrivals(rate, *play, rand.Uint64()), ordering(s))
	require.NoError(b, err)
	stop()
	require.NoError(b, <-looked)
	reportTimes(b, r)
	b.ReportMetric(most.rows, report.MostRows)
	b.ReportMetric(most.over, report.MostOver)
	b.ReportMetric(most.dead, report.MostDead)
	b.ReportMetric(most.half, report.HalfSize)
	b.ReportMetric(most.megabytes, report.EndSize)
	b.ReportMetric(most.megabytes/most.half, report.Growth)
}

// look has the most rows of the table, and its size at half time and at the end.
type look struct{ rows, over, dead, half, megabytes float64 }

// watch looks again and again, until its context ends.
func watch(ctx context.Context, at func(ctx context.Context) (look, error), every time.Duration) (most look, err error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var sizes []float64
	for {
		select {
		case <-ctx.Done():
			if len(sizes) == 0 {
				return most, context.Cause(ctx)
			}
			most.half, most.megabytes = sizes[len(sizes)/2], sizes[len(sizes)-1]
			return most, nil
		case <-ticker.C:
		}
		l, err := at(context.WithoutCancel(ctx))
		if err != nil {
			return most, err
		}
		most = look{rows: max(most.rows, l.rows), over: max(most.over, l.over), dead: max(most.dead, l.dead)}
		sizes = append(sizes, l.megabytes)
	}
}
