package suite_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/shop"
)

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
