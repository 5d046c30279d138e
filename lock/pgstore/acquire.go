package pgstore

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// silence bounds the wait for the answer of a connection that was idle.
const silence = time.Second

// firstTry returns a context for one attempt within ctx: a third of the time left, at most silence.
func firstTry(ctx context.Context) (context.Context, context.CancelFunc) {
	d := silence
	if end, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(end)/3)
	}
	return context.WithTimeout(ctx, d)
}

// PingIdle returns a function for the ShouldPing of one [pgxpool.Config]. [Open] sets it. Set it
// for the pool that you pass to [New], unless no network can drop idle connections without an end,
// as a NAT and a failed node do:
//
//	cfg.ShouldPing = pgstore.PingIdle()
//
// It asks a connection that was idle for a second whether it is alive, and closes it if it does not
// answer within a second, or within a third of the caller's time if that is less. It then also closes
// the connections that were idle meanwhile, without asking them. The pool itself would wait for
// each of them until the time of the caller is over, and count it as used for 15 seconds more.
func PingIdle() func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
	var latest atomic.Int64 // moment of the latest silence
	return func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
		if p.IdleDuration <= time.Second {
			return false
		}
		if used := time.Now().Add(-p.IdleDuration).UnixNano(); used > latest.Load() {
			first, cancel := firstTry(ctx)
			defer cancel()
			if p.Conn.Ping(first) == nil {
				return false
			}
			if first.Err() != nil {
				latest.Store(time.Now().UnixNano())
			}
		}
		_ = p.Conn.PgConn().Conn().Close()
		return true // the pool's own ping fails at once
	}
}

// acquireSQL takes a connection of db, whose driver asks a connection that was idle whether it is
// alive. Each silence closes that connection.
func acquireSQL(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	for {
		first, cancel := firstTry(ctx)
		conn, err := db.Conn(first)
		over := first.Err() != nil
		cancel()
		if err == nil || !over || ctx.Err() != nil {
			return conn, err
		}
	}
}
