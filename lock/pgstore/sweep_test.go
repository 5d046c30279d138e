package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

// The clean-up of a claim does not pass again and again through the entries of an index that
// an old snapshot keeps there, though their rows are gone.
func TestCleanUpUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	const gone, sweeps = 50_000, 20
	c := pgtest.Shared(t)
	db := c.Database(t)
	url := c.URL(db, "postgres")
	migrate(t, newStore(t, newPool(t, url)))
	fill := pgxtest.Connect(t, c.URL(db, ""))
	run(t, fill, `INSERT INTO latch_entries SELECT int8send(i), 't', 1, '', '', 0, now() - interval '1 hour', 0, 'r', now() - interval '1 hour' + i * interval '1 microsecond' FROM generate_series(1, $1::int) AS i`, gone)
	old := pgxtest.Connect(t, c.URL(db, ""))
	tx, err := old.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	var n int
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM latch_entries").Scan(&n)) // has its snapshot now
	run(t, fill, "DELETE FROM latch_entries")
	require.NoError(t, fill.Close(t.Context()))
	requireGone(t, c, db, fill.PgConn().PID()) // a session reports its reads when it ends

	full := blocksRead(t, c, db, func() {
		s := pgstore.New(newPool(t, url))
		defer s.Close()
		_, err := s.Sweep(t.Context(), 100)
		require.NoError(t, err)
	})
	claim := func(stores, claims int) {
		for i := range stores {
			s := pgstore.New(newPool(t, url))
			for j := range claims {
				must.Entry(t)(s.Claim(t.Context(), fmt.Sprint(stores, i, j), lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}))
			}
			s.Close()
		}
	}
	without := blocksRead(t, c, db, func() { claim(sweeps, 63) }) // none of which sweeps
	with := blocksRead(t, c, db, func() { claim(1, sweeps*64) })
	t.Logf("blocks of the index: a sweep of all reads %d, claims without a sweep %d, with %d sweeps %d", full, without, sweeps, with)
	require.Greater(t, full, 100)
	require.Less(t, with-without, 4*full)
	require.NoError(t, tx.Rollback(t.Context()))
}

// blocksRead returns the number of blocks of the index of the clean-up that are read while f runs.
// The sessions of f have to end in f, because they report at their end.
func blocksRead(t *testing.T, c *pgtest.Cluster, db string, f func()) (blocks int) {
	t.Helper()
	look := pgxtest.Connect(t, c.URL(db, ""))
	read := func() (n int) {
		require.Eventually(t, func() bool {
			var sessions int
			err := look.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%WITH due AS%' AND pid <> pg_backend_pid()").Scan(&sessions)
			return err == nil && sessions == 0
		}, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, look.QueryRow(t.Context(), "SELECT idx_blks_read + idx_blks_hit FROM pg_statio_user_indexes WHERE indexrelname = 'latch_entries_sweep_at'").Scan(&n))
		return n
	}
	before := read()
	f()
	return read() - before
}

// requireGone waits for the end of a session.
func requireGone(t *testing.T, c *pgtest.Cluster, db string, pid uint32) {
	t.Helper()
	look := pgxtest.Connect(t, c.URL(db, ""))
	require.Eventually(t, func() bool {
		var sessions int
		err := look.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1::int", int64(pid)).Scan(&sessions)
		return err == nil && sessions == 0
	}, 20*time.Second, 10*time.Millisecond)
}

// A row that ends after a sweep is removed by the next sweep. A row that a sweep had to leave
// because it was locked is removed by a later sweep.
func TestCleanUpLeavesNothing(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	db := c.Database(t)
	s := newStore(t, newPool(t, c.URL(db, "postgres")))
	admin := pgxtest.Connect(t, c.URL(db, ""))
	count := func() (n int) {
		require.NoError(t, pgxtest.Connect(t, c.URL(db, "")).QueryRow(t.Context(), "SELECT count(*) FROM latch_entries WHERE key LIKE 'old%'").Scan(&n))
		return n
	}
	claims := 0
	claim := func(n int) {
		for range n {
			claims++
			must.Entry(t)(s.Claim(t.Context(), fmt.Sprint(claims), lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}))
		}
	}
	insert := func(from, to int) {
		run(t, admin, `INSERT INTO latch_entries SELECT ('old' || i)::bytea, 't', 1, '', '', 0, now(), 0, 'r', now() FROM generate_series($1::int, $2::int) AS i`, from, to)
	}
	for i := range 3 {
		insert(300*i, 300*i+299)
		require.Eventually(t, func() bool { claim(64); return count() == 0 }, 20*time.Second, 10*time.Millisecond)
	}
	insert(1000, 1009)
	tx, err := admin.Begin(t.Context())
	require.NoError(t, err)
	run(t, tx, "SELECT FROM latch_entries WHERE key = 'old1003' FOR UPDATE")
	require.Eventually(t, func() bool { claim(64); return count() == 1 }, 20*time.Second, 10*time.Millisecond)
	claim(64)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 1, count())
	removed, err := s.Sweep(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, removed, "a sweep that is asked for looks at all")
}

// Work may settle its claim after the lease: a sweep between them leaves the row. The row of a
// plain lock is removed.
func TestCleanUpLeavesTheClaimOfWork(t *testing.T) {
	t.Parallel()
	s := newStore(t, newPool(t, database(t)))
	const record, plain = "once:late", "late"
	for _, key := range []string{record, plain} {
		must.Entry(t)(s.Claim(t.Context(), key, lock.Claim{Token: "t", Attempt: 1, Lease: time.Millisecond}))
	}
	_, tx, err := s.Begin(t.Context(), record, "t")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		e, err := s.Get(t.Context(), record)
		return err == nil && e.State == lock.Free
	}, 20*time.Second, time.Millisecond)
	removed, err := s.Sweep(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, removed, "of the lock")
	must.Yes(t)(tx.Settle(t.Context(), []byte("late"), time.Minute))
}

// A renewed row is not swept. As many of them as a sweep looks at hold up no sweep of the rows that
// come after them.
func TestCleanUpLeavesRenewedRows(t *testing.T) {
	t.Parallel()
	s := newStore(t, newPool(t, database(t)))
	const renewed = 5
	claim := lock.Claim{Token: "t", Attempt: 1, Lease: 2 * time.Second}
	for i := range renewed + 1 {
		must.Entry(t)(s.Claim(t.Context(), fmt.Sprint(i), claim))
		if i < renewed {
			must.Yes(t)(s.Renew(t.Context(), fmt.Sprint(i), lock.Claim{Token: "t", Lease: time.Hour}))
		}
	}
	require.Eventually(t, func() bool {
		e, err := s.Get(t.Context(), fmt.Sprint(renewed))
		return err == nil && e.State == lock.Free
	}, 20*time.Second, 10*time.Millisecond)
	removed := 0
	for range 3 {
		n, err := s.Sweep(t.Context(), renewed)
		require.NoError(t, err)
		removed += n
	}
	require.Equal(t, 1, removed)
	for i := range renewed {
		e := must.Entry(t)(s.Get(t.Context(), fmt.Sprint(i)))
		require.Equal(t, lock.Held, e.State)
	}
}

// A claim whose note has not ended stays, and a transaction of work that has its snapshot still
// settles it. The note goes after its end, and the claim after the note.
func TestCleanUpLeavesAClaimWithItsNote(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	db := c.Database(t)
	s := newStore(t, newPool(t, c.URL(db, "postgres")))
	age := pgxtest.Connect(t, c.URL(db, ""))
	sweep := func(aged string, limit int) (removed int) {
		run(t, age, "UPDATE latch_entries SET sweep_at = 'epoch'::timestamptz + length(key) * interval '1 second' WHERE "+aged)
		removed, err := s.Sweep(t.Context(), limit)
		require.NoError(t, err)
		return removed
	}
	const settled, held = "once:settled", "once:held" // which a sweep looks at first
	for _, key := range []string{settled, held} {
		claim := lock.Claim{Token: "t", Attempt: 1, Lease: time.Second}
		must.Entry(t)(s.Claim(t.Context(), key, claim))
		for range 2 {
			claim.Lease += time.Minute
			must.Yes(t)(s.Renew(t.Context(), key, claim))
		}
	}
	var stay int
	require.NoError(t, age.QueryRow(t.Context(), "SELECT min(extract(epoch FROM sweep_at - ends_at))::int FROM latch_entries").Scan(&stay))
	require.GreaterOrEqual(t, stay, 600, "a renewal that is confirmed within that time is not passed over")
	require.Eventually(t, func() (over bool) {
		err := age.QueryRow(t.Context(), "SELECT max(ends_at) < clock_timestamp() FROM latch_entries WHERE token = 't'").Scan(&over)
		return err == nil && over
	}, 20*time.Second, 5*time.Millisecond)

	require.Zero(t, sweep("token = 't'", 10))
	ctx, tx, err := s.Begin(t.Context(), settled, "t")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) })
	require.NoError(t, exec(ctx, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"))
	require.NoError(t, exec(ctx, "SELECT count(*) FROM latch_entries"))
	removed, err := s.Sweep(t.Context(), 10)
	require.NoError(t, err)
	require.Zero(t, removed)
	must.Yes(t)(tx.Settle(t.Context(), []byte("receipt"), time.Millisecond))
	require.Eventually(t, func() bool { return sweep("token = 't'", 1) == 1 }, 20*time.Second, 5*time.Millisecond, "the receipt has ended")

	e := must.Entry(t)(s.Get(t.Context(), held))
	require.Equal(t, lock.Held, e.State)
	require.Zero(t, sweep("true", 10))
	run(t, age, "UPDATE latch_entries SET ends_at = 'epoch' WHERE token = ''")
	require.Equal(t, 2, sweep("true", 10), "both notes")
	require.Equal(t, 1, sweep("true", 10))
}
