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
	"github.com/httplatch/httplatch/internal/testkit/parallel"
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
	require.ErrorContains(t, must.Err(tx.Settle(impatient, []byte("receipt"), time.Hour)), "COMMIT was not answered")
	return tx
}

// Work that leaves a savepoint open is settled in the savepoint. The session is ended nevertheless.
func TestOutcomeOfWorkThatLeavesASavepointOpen(t *testing.T) {
	t.Parallel()
	s := openShop(t, func(db string) string { return losesCommits(t, pgtest.Shared(t).Addr()).URL(db, "postgres") })
	tx := unanswered(t, s.store, func(ctx context.Context) {
		own, ok := pgstore.Tx(ctx)
		require.True(t, ok)
		inner := must.Get(own.Begin(ctx))(t)
		must.Get(inner.Exec(ctx, "INSERT INTO orders VALUES ('inner')"))(t)
	})
	require.Equal(t, 1, s.sessionsInTransaction(t))
	must.No(t)(tx.Outcome(t.Context()))
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
		parallel.Run(t, name, func(t *testing.T) {
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
			must.Get(order("late")(ctx))(t)
			began := time.Now()
			impatient, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err = tx.Settle(impatient, []byte("receipt"), time.Hour)
			require.ErrorContains(t, err, "COMMIT was not answered")
			must.No(t)(tx.Outcome(t.Context()))
			must.Yes(t)(s.store.Release(t.Context(), "k", lock.Claim{Token: "t"}))
			_, err = s.store.Claim(t.Context(), "k", claim) // its first send
			require.ErrorIs(t, err, lock.ErrNotApplied)
			require.Less(t, time.Since(began), late)
			proxy.Wait(t, sqlproxy.DelayRequest, 1)
			time.Sleep(200 * time.Millisecond)
			require.Empty(t, s.orders(t))

			must.Run(t)(s.locker(t).Once(t.Context(), "k", nil, insert("next"))) // the key is free
			require.Equal(t, []string{"next"}, s.orders(t))
		})
	}
}

// A session serves one work after the other, and behind PgBouncer one client after the other. Work that
// has sent its own COMMIT leaves the mark of its transaction there, even if its next transaction is rolled
// back. Later work on the same session, which ends its own transaction, is not taken as committed.
func TestMarkOfAnEarlierTransaction(t *testing.T) {
	t.Parallel()
	const order = "INSERT INTO orders VALUES ('mine')"
	errAfter := errors.New("after its end")
	for end, through := range map[string]func(t *testing.T) func(db string) string{
		"ROLLBACK AND CHAIN": func(t *testing.T) func(db string) string { t.Helper(); return direct(t) },
		"ROLLBACK": func(t *testing.T) func(db string) string {
			t.Helper()
			return bounced(t, pgtest.Shared(t).Addr(), "default_pool_size=1")
		},
	} {
		for _, before := range []struct {
			statement string
			err       error
		}{
			{"SELECT 1", nil}, {"SELECT 1", errAfter}, {"COMMIT", nil}, {"COMMIT", errAfter}, {"COMMIT AND CHAIN", errAfter}, {"COMMIT; BEGIN", errAfter},
		} {
			parallel.Run(t, fmt.Sprint(end, " after ", before.statement, " ", before.err), func(t *testing.T) {
				s := openShop(t, through(t), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
				l := s.locker(t)
				_, _, err := l.Once(t.Context(), "before", nil, func(ctx context.Context) ([]byte, error) {
					return nil, errors.Join(statements(order, before.statement)(ctx), before.err)
				})
				require.ErrorIs(t, err, before.err)
				there := s.orders(t)
				for i := range 5 {
					_, _, err = l.Once(t.Context(), fmt.Sprint(i), nil, func(ctx context.Context) ([]byte, error) { return nil, statements(order, end)(ctx) })
					require.ErrorIs(t, err, lock.ErrNotApplied, "answered without its effect")
				}
				require.Equal(t, there, s.orders(t))
			})
		}
	}
}

// Work has ended its transaction by itself, and its connection is cut before the store knows how, or when
// it leaves the receipt. The work does not run again. If nothing shows how it has ended, it is answered
// neither as a success nor as a failure.
func TestWorkThatCommitsAndIsCut(t *testing.T) {
	t.Parallel()
	const order = "INSERT INTO orders VALUES ('first')"
	for name, tt := range map[string]struct {
		work  func(ctx context.Context) error
		start string // of the statement that is cut
		cut   string
		seen  bool // the COMMIT
	}{
		"with its receipt": {work: statements(order, "COMMIT"), cut: "SET receipt", seen: true},
		"before it is asked for the mark": {
			work:  func(ctx context.Context) error { return errors.Join(exec(ctx, order), query(ctx, "COMMIT")) },
			start: "SELECT", cut: "latch.work",
		},
		"in a statement after it": {
			work: func(ctx context.Context) error {
				err := statements(order, "COMMIT")(ctx)
				_ = exec(ctx, "SELECT 'later'")
				return err
			},
			start: "SELECT", cut: "later", seen: true,
		},
	} {
		for over, open := range map[string]func(t *testing.T, through func(db string) string) *shop{
			"pgx":          func(t *testing.T, through func(db string) string) *shop { t.Helper(); return openShop(t, through) },
			"database/sql": openSQLShopThrough,
		} {
			parallel.Run(t, name+", "+over, func(t *testing.T) {
				p := sqlproxy.Postgres(t, pgtest.Shared(t).Addr(), nil)
				s := open(t, func(db string) string { return p.URL(db, "postgres") })
				l := s.locker(t)
				_, _, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
					require.NoError(t, exec(ctx, "SELECT 1")) // BEGIN sets the mark
					var struck atomic.Bool
					p.Decide(func(x *sqlproxy.Exchange) (f sqlproxy.Fault) {
						if x.Contains(tt.cut) && (x.Begins(tt.start) || tt.start == "" && !struck.Swap(true)) {
							f.Action = sqlproxy.CutRequest
						}
						return f
					})
					return []byte("receipt"), tt.work(ctx)
				})
				require.Positive(t, p.Count(sqlproxy.CutRequest))
				want := "receipt"
				if tt.seen {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, lock.ErrUnknown)
					require.NotErrorIs(t, err, lock.ErrNotApplied)
					want = ""
				}
				s.requireReplay(t, l, want)
				require.Equal(t, []string{"first"}, s.orders(t))
			})
		}
	}
}

// Behind PgBouncer, another session can answer the question how work has ended its transaction. Its
// answer shows nothing.
func TestMarkInAnotherSession(t *testing.T) {
	t.Parallel()
	s := openShop(t, bounced(t, pgtest.Shared(t).Addr()))
	l := s.locker(t)
	_, _, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
		err := errors.Join(exec(ctx, "INSERT INTO orders VALUES ('first')"), query(ctx, "COMMIT"))
		other, beginErr := s.pool.Begin(ctx) // gets the session that was used last
		require.NoError(t, beginErr)
		t.Cleanup(func() { _ = other.Rollback(context.WithoutCancel(ctx)) })
		_, beginErr = other.Exec(ctx, "SELECT 1")
		require.NoError(t, beginErr)
		return []byte("receipt"), err
	})
	require.ErrorIs(t, err, lock.ErrUnknown)
	require.NotErrorIs(t, err, lock.ErrNotApplied)
	s.requireReplay(t, l, "")
	require.Equal(t, []string{"first"}, s.orders(t))
}

// requireReplay waits for the receipt of the work of key "k".
func (s *shop) requireReplay(t *testing.T, l *lock.Locker, want string) {
	t.Helper()
	var receipt []byte
	var replayed bool
	require.Eventually(t, func() bool {
		var err error
		receipt, replayed, err = l.Once(t.Context(), "k", nil, insert("second"))
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.True(t, replayed, "it has run again")
	require.Equal(t, want, string(receipt))
}
