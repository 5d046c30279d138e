package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// losesCommits is a proxy that no COMMIT passes. The server keeps the session, and waits.
func losesCommits(t *testing.T, addr string) *sqlproxy.Proxy {
	t.Helper()
	return sqlproxy.Postgres(t, addr, func(x *sqlproxy.Exchange) sqlproxy.Fault {
		if x.Begins("COMMIT") {
			return sqlproxy.Fault{Action: sqlproxy.Freeze}
		}
		return sqlproxy.Fault{}
	})
}

// unanswered begins the transaction of a claim, does some work in it, and settles it, with a COMMIT
// that the server never gets.
func unanswered(t *testing.T, store *pgstore.Store, work func(ctx context.Context)) lock.Transaction {
	t.Helper()
	e, err := store.Claim(t.Context(), record, lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Linger: time.Minute})
	require.NoError(t, err)
	require.Equal(t, lock.Held, e.State)
	ctx, tx, err := store.Begin(t.Context(), record, "t")
	require.NoError(t, err)
	work(ctx)
	impatient, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = tx.Settle(impatient, []byte("receipt"), time.Hour)
	require.ErrorContains(t, err, "COMMIT was not answered")
	return tx
}

// Work that leaves a savepoint open is settled in the savepoint. The session is ended nevertheless.
func TestOutcomeOfWorkThatLeavesASavepointOpen(t *testing.T) {
	t.Parallel()
	s := openShop(t, func(db string) string { return losesCommits(t, pgtest.Shared(t).Addr()).URL(db, "postgres") })
	tx := unanswered(t, s.store, func(ctx context.Context) {
		own, ok := pgstore.Tx(ctx)
		require.True(t, ok)
		inner, err := own.Begin(ctx)
		require.NoError(t, err)
		_, err = inner.Exec(ctx, "INSERT INTO orders VALUES ('inner')")
		require.NoError(t, err)
	})
	require.Equal(t, 1, s.sessionsInTransaction(t))
	committed, err := tx.Outcome(t.Context())
	require.NoError(t, err)
	require.False(t, committed)
	require.Eventually(t, func() bool { return s.sessionsInTransaction(t) == 0 }, 10*time.Second, time.Millisecond, "it has rows locked still")
	require.Empty(t, s.orders(t))
}
