package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
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
	e := must.Entry(t)(store.Claim(t.Context(), record, lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Linger: time.Minute}))
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

// The sequence of events:
//
//  1. A claim is sent twice, since the first send got no answer. The second is granted.
//  2. The work's COMMIT gets no answer. The fence says that it is not committed, which the caller
//     is answered, and the claim is released.
//  3. The first send of the claim arrives. It must not make the entry anew, with the same token.
//  4. The COMMIT arrives. Directly, its session was ended. PgBouncer does not know yet that its
//     client has gone, and passes it on.
func TestLateCommitFindsALateClaimOfItsToken(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "holds statements back for 3 s")
	t.Parallel()
	for name, pooled := range map[string]bool{"direct": false, "PgBouncer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const late = 3 * time.Second
			addr := pgtest.Shared(t).Addr()
			if pooled {
				addr = pgtest.PgBouncer(t, addr).Addr()
			}
			var commits atomic.Int64
			proxy := sqlproxy.Postgres(t, addr, func(x *sqlproxy.Exchange) sqlproxy.Fault {
				if x.Begins("COMMIT") && commits.Add(1) == 1 {
					return sqlproxy.Fault{Action: sqlproxy.DelayRequest, Delay: late}
				}
				return sqlproxy.Fault{}
			})
			s := openShop(t, func(db string) string { return proxy.URL(db, "postgres") }, func(cfg *pgxpool.Config) {
				cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
			})
			claim := lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}
			e := must.Entry(t)(s.store.Claim(t.Context(), "k", claim))
			require.Equal(t, []any{lock.Held, "t"}, []any{e.State, e.Token})
			ctx, tx, err := s.store.Begin(t.Context(), "k", "t")
			require.NoError(t, err)
			_, err = order("late")(ctx)
			require.NoError(t, err)
			began := time.Now()
			impatient, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err = tx.Settle(impatient, []byte("receipt"), time.Hour)
			require.ErrorContains(t, err, "COMMIT was not answered")
			committed, err := tx.Outcome(t.Context())
			require.NoError(t, err)
			require.False(t, committed)
			must.Yes(t)(s.store.Release(t.Context(), "k", lock.Claim{Token: "t"}))
			_, err = s.store.Claim(t.Context(), "k", claim) // its first send
			require.ErrorIs(t, err, lock.ErrNotApplied)
			require.Less(t, time.Since(began), late)
			proxy.Wait(t, sqlproxy.DelayRequest, 1)
			time.Sleep(200 * time.Millisecond)
			require.Empty(t, s.orders(t))

			_, replayed, err := s.locker(t).Once(t.Context(), "k", nil, insert("next")) // the key is free
			require.NoError(t, err)
			require.False(t, replayed)
			require.Equal(t, []string{"next"}, s.orders(t))
		})
	}
}

// Behind PgBouncer a session of the server serves one client after the other. Work that has sent
// its own COMMIT leaves the mark of its transaction there, even if its next transaction is rolled back.
// Later work on the same session, which has sent its own ROLLBACK, is not taken as committed.
func TestMarkOfAnEarlierTransaction(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"COMMIT", "COMMIT AND CHAIN", "COMMIT; BEGIN"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, bounced(t, pgtest.Shared(t).Addr(), "default_pool_size=1"), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
			l := s.locker(t)
			errAfter := errors.New("after its end")
			_, _, err := l.Once(t.Context(), "committed", nil, func(ctx context.Context) ([]byte, error) {
				return nil, errors.Join(statements("INSERT INTO orders VALUES ('committed')", end)(ctx), errAfter)
			})
			require.ErrorIs(t, err, errAfter)
			for i := range 5 {
				_, _, err = l.Once(t.Context(), fmt.Sprint(i), nil, func(ctx context.Context) ([]byte, error) {
					return nil, statements("INSERT INTO orders VALUES ('rolled back')", "ROLLBACK")(ctx)
				})
				require.ErrorIs(t, err, lock.ErrNotApplied, "answered without its effect")
			}
			require.Equal(t, []string{"committed"}, s.orders(t))
		})
	}
}

// Work has committed its transaction by itself, and the store gets no answer when it leaves the
// receipt. The work does not run again.
func TestWorkThatCommitsWhileTheServerIsSilent(t *testing.T) {
	t.Parallel()
	p := sqlproxy.Postgres(t, pgtest.Shared(t).Addr(), nil)
	s := openShop(t, func(db string) string { return p.URL(db, "postgres") })
	var struck atomic.Bool
	receipt, _, err := s.locker(t).Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
		p.Decide(func(x *sqlproxy.Exchange) (f sqlproxy.Fault) {
			if x.Contains("SET receipt") && !struck.Swap(true) {
				f.Action = sqlproxy.CutRequest
			}
			return f
		})
		return []byte("receipt"), statements("INSERT INTO orders VALUES ('first')", "COMMIT")(ctx)
	})
	require.NoError(t, err)
	require.True(t, struck.Load())
	require.Equal(t, "receipt", string(receipt))
	require.Equal(t, "receipt", must.Replay(t)(s.locker(t).Once(t.Context(), "k", nil, order("second"))))
	require.Equal(t, []string{"first"}, s.orders(t))
}
