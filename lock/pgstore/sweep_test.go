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
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
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
	tx := must.Get(old.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
	require.Positive(t, one[int](t, tx, "SELECT count(*) FROM latch_entries")) // has its snapshot now
	run(t, fill, "DELETE FROM latch_entries")
	require.NoError(t, fill.Close(t.Context()))
	look := pgxtest.Connect(t, c.URL(db, ""))
	ended := fmt.Sprint("pid = ", fill.PgConn().PID()) // a session reports its reads when it ends
	eventually(t, func() bool { return sessions(t, look, ended) == 0 })

	full := blocksRead(t, look, func() {
		s := pgstore.New(newPool(t, url))
		defer s.Close()
		must.Get(s.Sweep(t.Context(), 100))(t)
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
	without := blocksRead(t, look, func() { claim(sweeps, 63) }) // none of which sweeps
	with := blocksRead(t, look, func() { claim(1, sweeps*64) })
	t.Logf("blocks of the index: a sweep of all reads %d, claims without a sweep %d, with %d sweeps %d", full, without, sweeps, with)
	require.Greater(t, full, 100)
	require.Less(t, with-without, 4*full)
	require.NoError(t, tx.Rollback(t.Context()))
}

// blocksRead returns the number of blocks of the index of the clean-up that are read while f runs.
// The sessions of f have to end in f, because they report at their end.
func blocksRead(t *testing.T, look *pgx.Conn, f func()) (blocks int) {
	t.Helper()
	const others = "query LIKE '%latch_entries%' AND state <> 'idle in transaction' AND pid <> pg_backend_pid()"
	read := func() int {
		eventually(t, func() bool { return sessions(t, look, others) == 0 })
		return one[int](t, look, "SELECT idx_blks_read + idx_blks_hit FROM pg_statio_user_indexes WHERE indexrelname = 'latch_entries_sweep_at'")
	}
	before := read()
	f()
	return read() - before
}

// A row that ends after a sweep is removed by the next sweep. A row that a sweep had to leave
// because it was locked is removed by a later sweep.
func TestCleanUpLeavesNothing(t *testing.T) {
	t.Parallel()
	c := pgtest.Shared(t)
	db := c.Database(t)
	s := newStore(t, newPool(t, c.URL(db, "postgres")))
	admin := pgxtest.Connect(t, c.URL(db, ""))
	look := pgxtest.Connect(t, c.URL(db, ""))
	count := func() int { return one[int](t, look, "SELECT count(*) FROM latch_entries WHERE key LIKE 'old%'") }
	claims := 0
	claim := func(n int) {
		for range n {
			claims++
			must.Entry(t)(s.Claim(t.Context(), fmt.Sprint(claims), lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}))
		}
	}
	// The rows end a while after they are committed: a sweep that still runs has passed rows that end earlier.
	insert := func(from, to int) {
		run(t, admin, `INSERT INTO latch_entries SELECT ('old' || i)::bytea, 't', 1, '', '', 0, now(), 0, 'r', now() + interval '2 s' FROM generate_series($1::int, $2::int) AS i`, from, to)
	}
	for i := range 3 {
		insert(300*i, 300*i+299)
		require.Eventually(t, func() bool { claim(64); return count() == 0 }, 20*time.Second, 10*time.Millisecond)
	}
	insert(1000, 1009)
	tx := must.Get(admin.Begin(t.Context()))(t)
	run(t, tx, "SELECT FROM latch_entries WHERE key = 'old1003' FOR UPDATE")
	require.Eventually(t, func() bool { claim(64); return count() == 1 }, 20*time.Second, 10*time.Millisecond)
	claim(64)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 1, count())
	removed := must.Get(s.Sweep(t.Context(), 10))(t)
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
	sqlshop.Await(t, s, record, lock.Free)
	require.Equal(t, 1, must.Get(s.Sweep(t.Context(), 10))(t), "of the lock")
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
	sqlshop.Await(t, s, fmt.Sprint(renewed), lock.Free)
	removed := 0
	for range 3 {
		removed += must.Get(s.Sweep(t.Context(), renewed))(t)
	}
	require.Equal(t, 1, removed)
	for i := range renewed {
		require.Equal(t, lock.Held, must.Entry(t)(s.Get(t.Context(), fmt.Sprint(i))).State)
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
		return must.Get(s.Sweep(t.Context(), limit))(t)
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
	stay := one[int](t, age, "SELECT min(extract(epoch FROM sweep_at - ends_at))::int FROM latch_entries")
	require.GreaterOrEqual(t, stay, 600, "a renewal that is confirmed within that time is not passed over")
	eventually(t, func() bool {
		return one[bool](t, age, "SELECT max(ends_at) < clock_timestamp() FROM latch_entries WHERE token = 't'")
	})

	require.Zero(t, sweep("token = 't'", 10))
	ctx, tx, err := s.Begin(t.Context(), settled, "t")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) })
	require.NoError(t, exec(ctx, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"))
	require.NoError(t, exec(ctx, "SELECT count(*) FROM latch_entries"))
	require.Zero(t, must.Get(s.Sweep(t.Context(), 10))(t))
	must.Yes(t)(tx.Settle(t.Context(), []byte("receipt"), time.Millisecond))
	require.Eventually(t, func() bool { return sweep("token = 't'", 1) == 1 }, 20*time.Second, 5*time.Millisecond, "the receipt has ended")

	require.Equal(t, lock.Held, must.Entry(t)(s.Get(t.Context(), held)).State)
	require.Zero(t, sweep("true", 10))
	run(t, age, "UPDATE latch_entries SET ends_at = 'epoch' WHERE token = ''")
	require.Equal(t, 2, sweep("true", 10), "both notes")
	require.Equal(t, 1, sweep("true", 10))
}
