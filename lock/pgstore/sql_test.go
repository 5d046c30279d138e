package pgstore_test

import (
	"context"
	crand "crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// openSQLShop is a shop whose store is over package database/sql.
func openSQLShop(t *testing.T) *shop {
	t.Helper()
	s := openShop(t, direct(t))
	var err error
	db, err := sql.Open("pgx", s.pool.Config().ConnString())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s.store = pgstore.NewSQL(db)
	t.Cleanup(s.store.Close)
	return s
}

// exec executes a statement in the transaction of the work, whichever it is.
func exec(ctx context.Context, statement string, args ...any) error {
	if tx, ok := pgstore.SQLTx(ctx); ok {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	}
	tx, ok := pgstore.Tx(ctx)
	if !ok {
		return errors.New("no transaction")
	}
	_, err := tx.Exec(ctx, statement, args...)
	return err
}

// insert inserts an order, after what else there is to do.
func insert(name string, before ...func(ctx context.Context) error) func(ctx context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		for _, f := range before {
			if err := f(ctx); err != nil {
				return nil, err
			}
		}
		return []byte(name), exec(ctx, "INSERT INTO orders VALUES ($1)", name)
	}
}

var errMine = errors.New("mine")

func TestSQLWorkIsCommittedWithItsReceipt(t *testing.T) {
	t.Parallel()
	s := openSQLShop(t)
	l := s.locker(t)
	_, _, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
		_, _ = insert("undone")(ctx)
		_, ok := pgstore.Tx(ctx)
		require.False(t, ok, "it is not pgx's")
		return nil, errMine
	})
	require.ErrorIs(t, err, errMine)
	require.Empty(t, s.orders(t))
	require.Panics(t, func() {
		_, _, _ = l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
			_, _ = insert("undone, too")(ctx)
			panic("mine")
		})
	})
	require.Empty(t, s.orders(t))
	_, _, err = l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
		_, _ = insert("aborted")(ctx)
		require.Error(t, exec(ctx, "SELECT 1/0"))
		return []byte("all is well"), nil
	})
	require.ErrorIs(t, err, lock.ErrNotApplied)
	require.ErrorContains(t, err, "a statement in it has failed")
	require.Empty(t, s.orders(t))
	for i := range 2 {
		receipt, replayed, err := l.Once(t.Context(), "k", nil, insert("done"))
		require.NoError(t, err)
		require.Equal(t, i > 0, replayed)
		require.Equal(t, "done", string(receipt))
	}
	require.Equal(t, []string{"done"}, s.orders(t))
	_, ok := pgstore.SQLTx(t.Context())
	require.False(t, ok)
}

// Commit and Rollback of a *sql.Tx cannot be kept from the work. What it has ended itself is
// not done again.
func TestSQLWorkThatEndsItsTransactionItself(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end    func(*sql.Tx) error
		orders []string
	}{
		"Commit":   {(*sql.Tx).Commit, []string{"mine"}},
		"Rollback": {(*sql.Tx).Rollback, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openSQLShop(t)
			l := s.locker(t)
			for i := range 2 {
				receipt, replayed, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
					_, err := insert("mine")(ctx)
					require.NoError(t, err)
					tx, _ := pgstore.SQLTx(ctx)
					return []byte("receipt"), tt.end(tx)
				})
				require.NoError(t, err)
				require.Equal(t, i > 0, replayed)
				require.Equal(t, "receipt", string(receipt))
			}
			require.Equal(t, tt.orders, s.orders(t))
			require.Zero(t, s.sessionsInTransaction(t))
		})
	}
}

// sessionsInTransaction are those that have begun one, and do nothing in it.
func (s *shop) sessionsInTransaction(tb testing.TB) (n int) {
	tb.Helper()
	require.NoError(tb, s.db.QueryRow(tb.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'").Scan(&n))
	return n
}

// pgx's transaction keeps its end to itself.
func TestWorkMayNotEndItsTransaction(t *testing.T) {
	t.Parallel()
	s := openShop(t, direct(t))
	for name, end := range map[string]func(pgx.Tx, context.Context) error{"Commit": pgx.Tx.Commit, "Rollback": pgx.Tx.Rollback} {
		receipt, _, err := s.locker(t).Once(t.Context(), name, nil, func(ctx context.Context) ([]byte, error) {
			tx, _ := pgstore.Tx(ctx)
			require.ErrorContains(t, end(tx, ctx), "the guard commits this transaction with the receipt")
			return insert(name)(ctx)
		})
		require.NoError(t, err)
		require.Equal(t, name, string(receipt))
	}
	require.Equal(t, []string{"Commit", "Rollback"}, s.orders(t))
}

// The work chooses an isolation as its first statement. What the server cannot serialize is
// rolled back, and the next try runs.
func TestIsolationOfTheWork(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) *shop{
		"pgx":          func(t *testing.T) *shop { t.Helper(); return openShop(t, direct(t)) },
		"database/sql": openSQLShop,
	} {
		for _, tt := range []struct {
			isolation string
			// meanwhile is what another transaction commits after the work has read.
			read, meanwhile, write string
			fails                  bool
		}{
			{"READ COMMITTED", "SELECT count(*) FROM stock", "UPDATE stock SET n = n - 1", "UPDATE stock SET n = n - 1", false},
			{"REPEATABLE READ", "SELECT count(*) FROM stock", "INSERT INTO stock VALUES (7)", "INSERT INTO stock VALUES (8)", false},
			{"REPEATABLE READ", "SELECT count(*) FROM stock", "UPDATE stock SET n = n - 1", "UPDATE stock SET n = n - 1", true},
			{"SERIALIZABLE", "SELECT count(*) FROM stock", "UPDATE stock SET n = n - 1", "UPDATE stock SET n = n - 1", true},
			{"SERIALIZABLE", "SELECT count(*) FROM stock", "INSERT INTO stock SELECT count(*) FROM stock", "INSERT INTO stock VALUES (8)", true},
		} {
			t.Run(name+" "+tt.isolation+" "+tt.meanwhile, func(t *testing.T) {
				t.Parallel()
				s := open(t)
				_, err := s.db.Exec(t.Context(), "CREATE TABLE stock (n int); INSERT INTO stock VALUES (10); SET default_transaction_isolation = serializable")
				require.NoError(t, err)
				l := s.locker(t)
				runs := 0
				work := insert("order", func(ctx context.Context) error {
					runs++
					for _, statement := range []string{"SET TRANSACTION ISOLATION LEVEL " + tt.isolation, tt.read} {
						if err := exec(ctx, statement); err != nil {
							return err
						}
					}
					if runs == 1 {
						_, err := s.db.Exec(ctx, tt.meanwhile)
						require.NoError(t, err)
					}
					return exec(ctx, tt.write)
				})
				_, _, err = l.Once(t.Context(), "k", nil, work)
				if tt.fails {
					require.Error(t, err)
					require.ErrorContains(t, err, "40001")
					require.Empty(t, s.orders(t))
					_, replayed, err := l.Once(t.Context(), "k", nil, work)
					require.NoError(t, err)
					require.False(t, replayed)
					require.Equal(t, 2, runs)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, []string{"order"}, s.orders(t))
			})
		}
	}
}

// A pool that is set to serializable is so for the work. The store's own statements do not
// fail for it.
func TestIsolationOfThePool(t *testing.T) {
	t.Parallel()
	c := direct(t)
	s := openShop(t, func(db string) string { return c(db) + "&default_transaction_isolation=serializable" })
	_, _, err := s.locker(t).Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
		tx, _ := pgstore.Tx(ctx)
		var isolation string
		err := tx.QueryRow(ctx, "SHOW transaction_isolation").Scan(&isolation)
		require.Equal(t, "serializable", isolation)
		return nil, err
	})
	require.NoError(t, err)
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			var err error
			for range 50 {
				if _, err = s.store.Claim(t.Context(), "one", lock.Claim{Token: crand.Text(), Attempt: 1, Lease: time.Millisecond}); err != nil {
					break
				}
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
}

// A *sql.DB of another driver is reported.
func TestSQLOfAnotherDriver(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(otherDriver{})
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	store := pgstore.NewSQL(db)
	t.Cleanup(store.Close)
	_, err := store.Get(t.Context(), "k")
	require.ErrorIs(t, err, lock.ErrNotApplied)
	require.ErrorContains(t, err, "NewSQL needs a *sql.DB of github.com/jackc/pgx/v5/stdlib, and this one has connections of type pgstore_test.otherConn")
	require.ErrorContains(t, store.Check(t.Context()), "NewSQL needs")
}

type (
	otherDriver struct{}
	otherConn   struct{ driver.Conn }
)

func (otherDriver) Connect(context.Context) (driver.Conn, error) { return otherConn{}, nil }
func (otherDriver) Driver() driver.Driver                        { return nil }
func (otherConn) Close() error                                   { return nil }

// A connection that was closed when its COMMIT had just been answered, because the context
// ended, is not used again.
func TestSQLConnectionAfterTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	s := openShop(t, direct(t))
	cfg := s.pool.Config().ConnConfig
	end := &endAtCommit{}
	cfg.Tracer = end
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s.store = pgstore.NewSQL(db)
	t.Cleanup(s.store.Close)
	e, err := s.store.Claim(t.Context(), "k", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute})
	require.NoError(t, err)
	require.Equal(t, lock.Held, e.State)
	_, tx, err := s.store.Begin(t.Context(), "k", "t")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	end.cancel = cancel
	ok, err := tx.Settle(ctx, []byte("receipt"), time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	require.True(t, end.closed, "the connection was to be closed meanwhile")
	_, tx, err = s.store.Begin(t.Context(), "another", "t")
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
}

// endAtCommit ends a context when COMMIT is answered, and waits until that has closed the
// connection.
type endAtCommit struct {
	cancel context.CancelFunc
	closed bool
}

type commitKey struct{}

func (e *endAtCommit) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, commitKey{}, strings.EqualFold(data.SQL, "commit"))
}

func (e *endAtCommit) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	if commits, _ := ctx.Value(commitKey{}).(bool); !commits {
		return
	}
	e.cancel()
	for began := time.Now(); !e.closed && time.Since(began) < 20*time.Second; runtime.Gosched() {
		e.closed = conn.PgConn().Conn().SetDeadline(time.Time{}) != nil
	}
}

// The first call of a store asks a connection of the work how to connect. While it waits
// for one, other calls end when their contexts do.
func TestCallsWhileTheFirstWaitsForAConnection(t *testing.T) {
	t.Parallel()
	s := openShop(t, direct(t))
	db := stdlib.OpenDB(*s.pool.Config().ConnConfig)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	store := pgstore.NewSQL(db)
	t.Cleanup(store.Close)
	taken, err := db.Conn(t.Context())
	require.NoError(t, err)
	first := make(chan error, 1)
	go func() {
		_, err := store.Get(t.Context(), "k")
		first <- err
	}()
	require.Eventually(t, func() bool { return db.Stats().WaitCount == 1 }, 10*time.Second, time.Millisecond)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = store.Get(ended, "k")
	require.ErrorIs(t, err, lock.ErrNotApplied)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, taken.Close())
	require.NoError(t, <-first)
}
