package suite_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/shop"
)

var play = flag.Duration("play", time.Minute, "clean-up: how long an hour lasts")

// BenchmarkCleanUp keeps receipts for ten minutes of an hour of traffic, which is played faster.
func BenchmarkCleanUp(b *testing.B) {
	rate := size(2000.0, 50) // orders a second of the play
	for round := range *rounds {
		measure(b, round, "an hour of orders", shop.Ours, func(b *testing.B) {
			// The server looks after tables once a minute, which is a minute of the hour.
			url := startPostgres(b, "autovacuum=on", fmt.Sprintf("autovacuum_naptime=%d", max(1, int(play.Seconds()/60)))).DatabaseURL(b)
			s := openShop(b, shop.All()[0], shop.Target{URL: url, Pool: buyersPool, Keep: *play / 6})
			// No replays: in a short play a receipt expires while others are warmed up, and its key is held again.
			warmUp(b, s, func(context.Context, int) error { return nil })
			looking, stop := context.WithCancel(b.Context())
			defer stop()
			looked := make(chan error, 1)
			conn, most := connect(b, url), look{}
			go func() {
				var err error
				most, err = watch(looking, conn, *play/60)
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
		})
	}
}

// look has the most rows of the table, and its size at half time and at the end.
type look struct{ rows, over, dead, half, megabytes float64 }

// watch looks again and again, until its context ends.
func watch(ctx context.Context, conn *pgx.Conn, every time.Duration) (most look, err error) {
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
		var l look
		err := conn.QueryRow(context.WithoutCancel(ctx), `
SELECT count(*)::float8, (count(*) FILTER (WHERE ends_at <= clock_timestamp()))::float8,
	coalesce(pg_stat_get_dead_tuples('latch_entries'::regclass), 0)::float8, pg_total_relation_size('latch_entries') / 1e6
FROM latch_entries`).Scan(&l.rows, &l.over, &l.dead, &l.megabytes)
		if err != nil {
			return most, err
		}
		most = look{rows: max(most.rows, l.rows), over: max(most.over, l.over), dead: max(most.dead, l.dead)}
		sizes = append(sizes, l.megabytes)
	}
}
