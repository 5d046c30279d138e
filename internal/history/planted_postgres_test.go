package history_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// sloppy is a store with one statement that is wrong.
type sloppy struct {
	store
	pool *pgxpool.Pool
}

func newSloppy(t *testing.T, s store) sloppy {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), s.(postgresStore).url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return sloppy{s, pool}
}

// changes executes a statement, and reports whether there was a row for it.
func (s sloppy) changes(ctx context.Context, sql string, args ...any) (bool, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	done, err := conn.Exec(ctx, sql, args...)
	if conn.Conn().IsClosed() { // pgx would wait for a quarter of a minute for the proxy to agree
		return false, errors.Join(err, conn.Hijack().PgConn().Conn().Close())
	}
	conn.Release()
	return done.RowsAffected() > 0, err
}

// plainRenew renews whatever there is.
type plainRenew struct{ sloppy }

func plantPlainRenew(t *testing.T, _ string, s store) store {
	t.Helper()
	return plainRenew{newSloppy(t, s)}
}

func (s plainRenew) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return s.changes(ctx, `UPDATE latch_entries SET ends_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
		WHERE key = $1 AND receipt IS NULL`, []byte(key), c.Lease.Microseconds())
}

// plainDelete releases whatever there is.
type plainDelete struct{ sloppy }

func plantPlainDelete(t *testing.T, _ string, s store) store {
	t.Helper()
	return plainDelete{newSloppy(t, s)}
}

func (s plainDelete) Release(ctx context.Context, key string, _ lock.Claim) (bool, error) {
	return s.changes(ctx, `DELETE FROM latch_entries WHERE key = $1 AND receipt IS NULL`, []byte(key))
}

// greedy claims what others have, over or not.
type greedy struct{ sloppy }

func plantGreedy(t *testing.T, _ string, s store) store {
	t.Helper()
	return greedy{newSloppy(t, s)}
}

func (s greedy) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if _, err := s.changes(ctx, `DELETE FROM latch_entries WHERE key = $1 AND token <> $2 AND receipt IS NULL`, []byte(key), []byte(c.Token)); err != nil {
		return lock.Entry{}, err
	}
	return s.store.Claim(ctx, key, c)
}

// unforgiving claims nothing that was ever claimed, and not released.
type unforgiving struct{ sloppy }

func plantUnforgiving(t *testing.T, _ string, s store) store {
	t.Helper()
	return unforgiving{newSloppy(t, s)}
}

func (s unforgiving) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	held, err := s.changes(ctx, `SELECT FROM latch_entries WHERE key = $1 AND token <> $2 AND receipt IS NULL`, []byte(key), []byte(c.Token))
	switch {
	case err != nil:
		return lock.Entry{}, err
	case held:
		return lock.Entry{State: lock.Held}, nil
	}
	return s.store.Claim(ctx, key, c)
}

// lateSettle settles what is over, if no other has claimed it since.
type lateSettle struct{ sloppy }

func plantLateSettle(t *testing.T, _ string, s store) store {
	t.Helper()
	return lateSettle{newSloppy(t, s)}
}

func (s lateSettle) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	return s.changes(ctx, `UPDATE latch_entries SET receipt = $3, linger = 0, ends_at = clock_timestamp() + $4::bigint * interval '1 microsecond'
		WHERE key = $1 AND token = $2`, []byte(key), []byte(c.Token), receipt, keep.Microseconds())
}
