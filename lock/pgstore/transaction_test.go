package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

// shop is a database with orders, which nothing keeps from being doubled.
type shop struct {
	*sqlshop.Shop

	pool  *pgxpool.Pool
	store *pgstore.Store
	db    *pgx.Conn // not through a proxy
}

func openShop(tb testing.TB, through func(db string) string, configure ...func(*pgxpool.Config)) *shop {
	tb.Helper()
	c := pgtest.Shared(tb)
	name := c.Database(tb)
	s := &shop{db: pgxtest.Connect(tb, c.URL(name, ""))}
	run(tb, s.db, "CREATE TABLE orders (name text)")
	migrate(tb, newStore(tb, newPool(tb, c.URL(name, "postgres"))))
	s.pool = newPool(tb, through(name), configure...)
	s.store = pgstore.New(s.pool)
	tb.Cleanup(s.store.Close)
	s.Shop = &sqlshop.Shop{Store: s.store, DB: openSQL(tb, c.URL(name, "")), Tx: sqlTx, Exec: exec, Insert: "INSERT INTO orders VALUES ($1)", InTx: s.sessionsInTransaction}
	return s
}

func direct(tb testing.TB) func(db string) string {
	tb.Helper()
	return func(db string) string { return pgtest.Shared(tb).URL(db, "postgres") }
}

// bounced leads through a PgBouncer to the server at addr, for drivers that prepare no statements.
func bounced(tb testing.TB, addr string, settings ...string) func(db string) string {
	tb.Helper()
	b := pgtest.PgBouncer(tb, addr, settings...)
	return func(db string) string { return b.URL(db, "postgres") + "&default_query_exec_mode=exec" }
}

// locker returns one whose calls have time enough on a machine that is busy with other things.
func (s *shop) locker(tb testing.TB, opts ...lock.Option) *lock.Locker {
	tb.Helper()
	return sqlshop.Locker(tb, s.store, append([]lock.Option{lock.WithBudget(3 * time.Second)}, opts...)...)
}

// sqlTx returns the transaction of the work over package database/sql, nil over pgx.
func sqlTx(ctx context.Context) *sql.Tx {
	tx, _ := pgstore.SQLTx(ctx)
	return tx
}

func (s *shop) orders(tb testing.TB) []string {
	tb.Helper()
	return sqlshop.Names(tb, s.DB, "SELECT name FROM orders ORDER BY name")
}

// order inserts a row in the transaction of the work.
func order(name string) func(ctx context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		tx, ok := pgstore.Tx(ctx)
		if !ok {
			return nil, errors.New("no transaction")
		}
		if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1)", name); err != nil {
			return nil, err
		}
		return []byte(name), nil
	}
}

// Work that fails is rolled back, and the next work runs.
func TestWorkThatDoesNotEndWell(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		isolation pgx.TxIsoLevel
		work      func(ctx context.Context, tx pgx.Tx, s *shop) error
		err       []error
		fine      bool
	}{
		"error": {work: func(context.Context, pgx.Tx, *shop) error { return errors.New("mine") }},
		"a statement failed, and the work goes on": {work: func(ctx context.Context, tx pgx.Tx, _ *shop) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		}, err: []error{lock.ErrNotApplied}},
		"a statement failed in a savepoint": {work: func(ctx context.Context, tx pgx.Tx, _ *shop) error {
			_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SELECT 1/0")
				return err
			})
			return nil
		}, fine: true},
		"a constraint at the commit": {work: func(ctx context.Context, tx pgx.Tx, s *shop) error {
			_, err := s.db.Exec(ctx, "CREATE TABLE items (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			if err == nil {
				_, err = tx.Exec(ctx, "INSERT INTO items VALUES (1), (1)")
			}
			return err
		}, err: []error{lock.ErrNotApplied}},
		"Commit":   {work: func(ctx context.Context, tx pgx.Tx, _ *shop) error { return tx.Commit(ctx) }},
		"Rollback": {work: func(ctx context.Context, tx pgx.Tx, _ *shop) error { return tx.Rollback(ctx) }},
		"session ended": {work: func(ctx context.Context, tx pgx.Tx, s *shop) error {
			_, err := s.db.Exec(ctx, "SELECT pg_terminate_backend($1)", tx.Conn().PgConn().PID())
			return err
		}, err: []error{lock.ErrNotApplied, lock.ErrUnavailable}},
		"repeatable read": {isolation: pgx.RepeatableRead, work: conflict, err: []error{lock.ErrNotApplied, lock.ErrUnavailable}},
		"serializable":    {isolation: pgx.Serializable, work: conflict, err: []error{lock.ErrNotApplied, lock.ErrUnavailable}},
		"read committed":  {isolation: pgx.ReadCommitted, work: conflict, fine: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, direct(t), func(cfg *pgxpool.Config) {
				if tt.isolation != "" {
					cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(tt.isolation)
				}
			})
			l := s.locker(t)
			receipt, _, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
				receipt, err := order("first")(ctx)
				require.NoError(t, err)
				tx, _ := pgstore.Tx(ctx)
				return receipt, tt.work(ctx, tx, s)
			})
			if tt.fine {
				require.NoError(t, err)
				require.Equal(t, "first", string(receipt))
				require.Equal(t, []string{"first"}, s.orders(t))
				return
			}
			require.Error(t, err)
			for _, want := range tt.err {
				require.ErrorIs(t, err, want)
			}
			if len(tt.err) == 1 {
				require.NotErrorIs(t, err, lock.ErrUnavailable)
			}
			require.Empty(t, s.orders(t))
			must.Run(t)(l.Once(t.Context(), "k", nil, order("second")))
			require.Equal(t, []string{"second"}, s.orders(t))
		})
	}
}

// conflict changes the claim after the transaction has its snapshot, so that the receipt's
// statement meets a row that has changed since.
func conflict(ctx context.Context, _ pgx.Tx, s *shop) error {
	_, err := s.db.Exec(ctx, "UPDATE latch_entries SET ends_at = ends_at + interval '1 second'")
	return err
}

func TestCommitWithoutAnAnswer(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for budgets in real time")
	t.Parallel()
	for _, pooled := range []bool{false, true} {
		for _, may := range []bool{true, false} {
			t.Run(fmt.Sprintf("PgBouncer %v, may end sessions %v", pooled, may), func(t *testing.T) {
				t.Parallel()
				sqlshop.TestCommits(t, func(x *sqlproxy.Exchange) bool { return x.Begins("COMMIT") }, nil, func(t *testing.T) (*sqlshop.Shop, *sqlproxy.Proxy) {
					t.Helper()
					proxy := sqlproxy.Postgres(t, pgtest.Shared(t).Addr(), nil)
					through := func(db string) string { return proxy.URL(db, "postgres") }
					if pooled {
						through = bounced(t, proxy.Addr())
					}
					s := openShop(t, through)
					if !may {
						run(t, s.db, "ALTER FUNCTION pg_terminate_backend RENAME TO pg_terminate_backend_no_more")
					}
					return s.Shop, proxy
				})
			})
		}
	}
}

// The session of a COMMIT without an answer is ended while it waits for its client in the middle of
// the transaction. It is not while it executes a statement, which may be the COMMIT, or when it is
// idle. Another session may have got its number meanwhile: that one was not there when COMMIT was sent.
func TestOnlyAnIdleTransactionIsEnded(t *testing.T) {
	t.Parallel()
	early := time.Now()
	s := openShop(t, direct(t), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	begin := func() (ctx context.Context, rollback func()) {
		ctx, tx, err := s.store.Begin(t.Context(), "k", "t")
		require.NoError(t, err)
		return ctx, func() { _ = tx.Rollback(t.Context()) }
	}
	session := func() (pid uint32) {
		require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM pg_sleep(0.1)").Scan(&pid))
		return pid
	}
	before := session()
	endIdle := func() { s.store.EndIdle(t.Context(), before, time.Now()) }
	_, rollback := begin()
	endIdle()
	rollback()
	require.Equal(t, before, session())

	ctx, rollback := begin()
	defer rollback()
	unlock := s.lock(t, "orders")
	executed := make(chan error, 1)
	go func() { executed <- exec(ctx, "INSERT INTO orders VALUES ('tea')") }()
	require.Eventually(t, func() bool { return s.waiting(t) == 1 }, 20*time.Second, 10*time.Millisecond)
	endIdle()
	unlock()
	require.NoError(t, <-executed)
	for range 10 {
		s.store.EndIdle(t.Context(), before, early)
		require.NoError(t, exec(ctx, "SELECT"))
	}
	require.Eventually(t, func() bool { endIdle(); return exec(ctx, "SELECT") != nil }, 20*time.Second, 10*time.Millisecond)
}

// A holder that was paused beyond its lease, while another ran and committed: its own is
// rolled back, and it gets the other's answer.
func TestLoserIsRolledBack(t *testing.T) {
	t.Parallel()
	s := openShop(t, direct(t))
	l := s.locker(t)
	receipt, replayed, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
		_, err := s.db.Exec(ctx, "UPDATE latch_entries SET ends_at = clock_timestamp() - interval '1 second'")
		require.NoError(t, err)
		other := s.locker(t)
		require.Equal(t, "winner", must.Run(t)(other.Once(ctx, "k", nil, order("winner"))))
		return order("loser")(ctx)
	})
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, "winner", string(receipt))
	require.Equal(t, []string{"winner"}, s.orders(t))
}

// Work that holds every connection of the pool starves no renewal.
func TestWorkStarvesNoRenewal(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "measures renewals in real time")
	t.Parallel()
	s := openShop(t, direct(t), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	l := s.locker(t, lock.WithLease(3*time.Second), lock.WithBudget(time.Second))
	var wg sync.WaitGroup
	errs := make([]error, 50)
	for i := range errs {
		wg.Go(func() {
			for again := true; again; again = errors.Is(errs[i], lock.ErrDenied) { // a busy machine refuses some
				_, _, errs[i] = l.Once(t.Context(), fmt.Sprint(i), nil, func(ctx context.Context) ([]byte, error) {
					if _, err := order(fmt.Sprint(i))(ctx); err != nil {
						return nil, err
					}
					tx, _ := pgstore.Tx(ctx)
					_, err := tx.Exec(ctx, "SELECT pg_sleep(0.1)")
					return nil, err
				})
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Len(t, s.orders(t), 50)
}

// An effect that is not a row is noted at once, over another connection, and the note survives the
// rollback and the process.
func TestCommittedEffectThatIsNoRow(t *testing.T) {
	t.Parallel()
	s := openShop(t, direct(t))
	l := s.locker(t)
	_, _, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
		require.NoError(t, lock.Commit(ctx))
		var linger int64
		require.NoError(t, s.db.QueryRow(ctx, "SELECT max(linger) FROM latch_entries").Scan(&linger))
		require.Equal(t, (24 * time.Hour).Microseconds(), linger, "a process that dies now leaves an unknown outcome")
		_, err := order("undone")(ctx)
		require.NoError(t, err)
		return nil, errors.New("the charge went through, and then something failed")
	})
	require.Error(t, err)
	require.Empty(t, s.orders(t))
	require.Empty(t, must.Replay(t)(l.Once(t.Context(), "k", nil, order("again"))))
}
