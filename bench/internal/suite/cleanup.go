package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/bench/internal/load"
	"github.com/httplatch/httplatch/bench/internal/shop"
)

// CleanUp is the part in which receipts are kept for ten minutes of an hour of traffic,
// which is played faster.
const CleanUp = "clean-up"

// Metrics of CleanUp. Times are those of the play.
const (
	MostRows = "rows at most"
	MostOver = "of them over, at most"
	MostDead = "dead rows at most"
	HalfSize = "MB at half time"
	EndSize  = "MB at the end"
)

// CleanUpRate are the orders a second of the play.
const CleanUpRate = 2000

// CleanUpCase names the case.
func CleanUpCase(play time.Duration) string {
	return fmt.Sprintf("an hour of %.0f orders/s in %v, kept for ten minutes of it", CleanUpRate*play.Hours(), play)
}

func measureCleanUp(ctx context.Context, b *bench) (err error) {
	// The server looks after tables once a minute, which is a minute of the hour.
	naptime := fmt.Sprintf("autovacuum_naptime=%d", max(1, int(b.Play.Seconds()/60)))
	url := b.startPostgres("autovacuum=on", naptime).DatabaseURL(b.host)
	s, err := shop.All()[0].Open(ctx, shop.Target{URL: url, Pool: buyersPool, Keep: b.Play / 6})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	if err := stock(ctx, s, []string{newKey(), newKey()}); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()

	looking, stop := context.WithCancel(ctx)
	defer stop()
	looked := make(chan error, 1)
	var looks []look
	go func() {
		var err error
		looks, err = watch(looking, conn, b.Play/60)
		looked <- err
	}()
	r, err := load.Open(ctx, buyersPool, load.Arrivals(CleanUpRate, b.Play, b.random.Uint64()), func(ctx context.Context, _, _ int) error {
		return s.Order(ctx, newKey())
	})
	stop()
	if err = errors.Join(err, <-looked); err != nil {
		return err
	}
	kase := CleanUpCase(b.Play)
	b.addTimes(kase, shop.Ours, r)
	b.addLooks(kase, looks)
	return nil
}

// look is what is in the table at a moment.
type look struct{ rows, over, dead, megabytes float64 }

// watch looks again and again, until its context ends.
func watch(ctx context.Context, conn *pgx.Conn, every time.Duration) (looks []look, err error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return looks, nil
		case <-ticker.C:
		}
		var l look
		err := conn.QueryRow(context.WithoutCancel(ctx), `
SELECT count(*)::float8, (count(*) FILTER (WHERE ends_at <= clock_timestamp()))::float8,
	coalesce(pg_stat_get_dead_tuples('latch_entries'::regclass), 0)::float8, pg_total_relation_size('latch_entries') / 1e6
FROM latch_entries`).Scan(&l.rows, &l.over, &l.dead, &l.megabytes)
		if err != nil {
			return nil, err
		}
		looks = append(looks, l)
	}
}

func (b *bench) addLooks(kase string, looks []look) {
	if len(looks) == 0 {
		return
	}
	var most look
	for _, l := range looks {
		most = look{rows: max(most.rows, l.rows), over: max(most.over, l.over), dead: max(most.dead, l.dead)}
	}
	for metric, value := range map[string]float64{
		MostRows: most.rows, MostOver: most.over, MostDead: most.dead,
		HalfSize: looks[len(looks)/2].megabytes, EndSize: looks[len(looks)-1].megabytes,
	} {
		b.add(kase, shop.Ours, metric, value)
	}
}
