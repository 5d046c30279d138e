package pgstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// openSQLShop is a shop whose store is over package database/sql.
func openSQLShop(t *testing.T) *shop {
	t.Helper()
	return openSQLShopThrough(t, direct(t))
}

func openSQLShopThrough(t *testing.T, through func(db string) string) *shop {
	t.Helper()
	s := openShop(t, through)
	db := must.Get(sql.Open("pgx", s.pool.Config().ConnString()))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s.store = pgstore.NewSQL(db)
	t.Cleanup(s.store.Close)
	s.Store = s.store
	return s
}

// exec executes a statement in the transaction of the work, whichever it is.
func exec(ctx context.Context, statement string, args ...any) error {
	if tx, ok := pgstore.SQLTx(ctx); ok {
		return must.Err(tx.ExecContext(ctx, statement, args...))
	}
	tx, ok := pgstore.Tx(ctx)
	if !ok {
		return sqlshop.ErrNoTx
	}
	return must.Err(tx.Exec(ctx, statement, args...))
}

// insert inserts an order, after the other steps.
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

// tutorial is a handler as in tutorials, which ends the transaction itself.
func tutorial(commits bool) func(ctx context.Context, _ *sqlshop.Shop) error {
	return func(ctx context.Context, _ *sqlshop.Shop) error {
		if tx, ok := pgstore.SQLTx(ctx); ok {
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ('tutorial')"); err != nil || !commits {
				return err
			}
			return tx.Commit()
		}
		tx, _ := pgstore.Tx(ctx)
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES ('tutorial')"); err != nil || !commits {
			return err
		}
		return tx.Commit(ctx)
	}
}

func statements(all ...string) func(ctx context.Context) error {
	return func(ctx context.Context) error { return sqlshop.Statements(all...)(ctx, &sqlshop.Shop{Exec: exec}) }
}

// query executes a statement with Query.
func query(ctx context.Context, statement string) error {
	if tx, ok := pgstore.SQLTx(ctx); ok {
		rows, err := tx.QueryContext(ctx, statement)
		if err != nil {
			return err
		}
		return errors.Join(rows.Close(), rows.Err())
	}
	tx, _ := pgstore.Tx(ctx)
	rows, err := tx.Query(ctx, statement)
	rows.Close()
	return errors.Join(err, rows.Err())
}

// openRows leaves rows open.
func openRows(ctx context.Context, _ *sqlshop.Shop) error {
	if tx, ok := pgstore.SQLTx(ctx); ok {
		rows, err := tx.QueryContext(ctx, "SELECT generate_series(1, 1000)") //nolint:rowserrcheck,sqlclosecheck // as the test wants
		_ = rows
		return err
	}
	tx, _ := pgstore.Tx(ctx)
	_, err := tx.Query(ctx, "SELECT generate_series(1, $1::int)", 1000) // sent with BEGIN, whose answer stays open, too
	return err
}

// backendOf returns the number of the session of the work.
func backendOf(ctx context.Context) (pid uint32) {
	if tx, ok := pgstore.Tx(ctx); ok {
		return tx.Conn().PgConn().PID()
	}
	tx, _ := pgstore.SQLTx(ctx)
	_ = tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid)
	return pid
}

// meets changes the claim after the transaction has its snapshot, so that the receipt's statement meets a
// row that has changed since.
func meets(isolation string) func(ctx context.Context, s *sqlshop.Shop) error {
	return func(ctx context.Context, s *sqlshop.Shop) error {
		err := statements("SET TRANSACTION ISOLATION LEVEL "+isolation, "INSERT INTO orders VALUES ('mine')")(ctx)
		_, changed := s.DB.ExecContext(ctx, "UPDATE latch_entries SET ends_at = ends_at + interval '1 second'")
		return errors.Join(err, changed)
	}
}

// Work as programs write it. Nothing that it does to its transaction makes an answer without its
// rows, or rows without their answer.
func TestWorkAsItIsWritten(t *testing.T) {
	t.Parallel()
	const order = "INSERT INTO orders VALUES ('mine')"
	for over, open := range shops {
		parallel.Run(t, over, func(t *testing.T) {
			sqlshop.TestWorks(t, func(t *testing.T) *sqlshop.Shop { t.Helper(); return open(t).Shop }, map[string]sqlshop.Work{
				"deferred Rollback":            {Do: tutorial(false), Rows: []string{"tutorial"}},
				"Commit and deferred Rollback": {Do: tutorial(true), Says: "the guard commits this transaction", Own: true},
				"COMMIT":                       {Do: sqlshop.Statements(order, "COMMIT"), Rows: []string{"mine"}},
				"COMMIT AND CHAIN":             {Do: sqlshop.Statements(order, "COMMIT AND CHAIN"), Rows: []string{"mine"}},
				"COMMIT AND CHAIN, more":       {Do: sqlshop.Statements(order, "COMMIT AND CHAIN", order), Rows: []string{"mine", "mine"}},
				"COMMIT, BEGIN, more":          {Do: sqlshop.Statements(order, "COMMIT", "BEGIN", order), Rows: []string{"mine", "mine"}},
				"COMMIT, more":                 {Do: sqlshop.Statements(order, "COMMIT", order), Rows: []string{"mine", "mine"}},
				"COMMIT in the middle of one":  {Do: sqlshop.Statements(order + "; COMMIT; SELECT 1"), Rows: []string{"mine"}},
				"COMMIT by a query": {Do: func(ctx context.Context, _ *sqlshop.Shop) error {
					return errors.Join(exec(ctx, order), query(ctx, "COMMIT"))
				}, Rows: []string{"mine"}},
				"COMMIT of what had failed": {Do: func(ctx context.Context, _ *sqlshop.Shop) error {
					_ = exec(ctx, "SELECT 1/0")
					return exec(ctx, "COMMIT")
				}, Says: "the work has ended it itself"},
				"ROLLBACK":           {Do: sqlshop.Statements(order, "ROLLBACK"), Says: "the work has ended it itself"},
				"ROLLBACK first":     {Do: sqlshop.Statements("ROLLBACK"), Says: "the work has ended it itself"},
				"ROLLBACK AND CHAIN": {Do: sqlshop.Statements(order, "ROLLBACK AND CHAIN"), Says: "the work has ended it itself"},
				"ROLLBACK; BEGIN":    {Do: sqlshop.Statements(order, "ROLLBACK; BEGIN", order), Says: "the work has ended it itself"},
				"ROLLBACK, BEGIN":    {Do: sqlshop.Statements(order, "ROLLBACK", "BEGIN", order), Says: "the work's transaction is over", Own: true},
				"ROLLBACK, more":     {Do: sqlshop.Statements(order, "ROLLBACK", order), Says: "the work's transaction is over", Own: true},
				"ROLLBACK, a query": {Do: func(ctx context.Context, _ *sqlshop.Shop) error {
					return errors.Join(exec(ctx, "ROLLBACK"), query(ctx, order))
				}, Says: "the work's transaction is over", Own: true},
				"several statements in one": {Do: sqlshop.Statements(order + "; " + order), Rows: []string{"mine", "mine"}},
				"savepoint rolled back":     {Do: sqlshop.Statements("SAVEPOINT a", order, "ROLLBACK TO SAVEPOINT a"), Rows: []string{}},
				"no such table, and no word of it": {Do: func(ctx context.Context, _ *sqlshop.Shop) error {
					_ = exec(ctx, "INSERT INTO nowhere VALUES (1)")
					return nil
				}, Says: "a statement in it has failed"},
				"no such table, second statement": {Do: func(ctx context.Context, _ *sqlshop.Shop) error {
					_ = exec(ctx, order)
					_ = exec(ctx, "INSERT INTO nowhere VALUES (1)")
					return nil
				}, Says: "a statement in it has failed"},
				"failed in a savepoint": {Do: func(ctx context.Context, _ *sqlshop.Shop) error {
					if tx, ok := pgstore.Tx(ctx); ok {
						_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "SELECT 1/0"); return err })
					}
					return exec(ctx, order)
				}, Rows: []string{"mine"}},
				"a constraint at the commit": {Do: sqlshop.Statements(
					"CREATE TABLE items (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)", "INSERT INTO items VALUES (1), (1)",
				), Says: "23505"},
				"session ended": {Do: func(ctx context.Context, s *sqlshop.Shop) error {
					err := exec(ctx, order)
					_, ended := s.DB.ExecContext(ctx, "SELECT pg_terminate_backend($1)", backendOf(ctx))
					return errors.Join(err, ended)
				}, Says: "not applied", May: true},
				"claim changed, read committed":  {Do: meets("READ COMMITTED"), Rows: []string{"mine"}},
				"claim changed, repeatable read": {Do: meets("REPEATABLE READ"), Says: "40001", May: true},
				"claim changed, serializable":    {Do: meets("SERIALIZABLE"), Says: "40001", May: true},
				"search_path":                    {Do: sqlshop.Statements("SET LOCAL search_path = pg_catalog", "INSERT INTO public.orders VALUES ('mine')"), Rows: []string{"mine"}},
				"role":                           {Do: sqlshop.Statements(order, "SET LOCAL ROLE pg_monitor"), Says: "its role may not write the receipt"},
				"read only":                      {Do: sqlshop.Statements(order, "SET LOCAL transaction_read_only = on"), Says: "it is read only"},
				"statement_timeout":              {Do: sqlshop.Statements(order, "CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(5); RETURN NEW; END'", "CREATE TRIGGER nap BEFORE UPDATE ON latch_entries FOR EACH ROW EXECUTE FUNCTION nap()", "SET LOCAL statement_timeout = 200"), Says: "57014", May: true},
				"rows left open":                 {Do: openRows, Says: "rows open"},
				"rows left open, after others": {Do: func(ctx context.Context, s *sqlshop.Shop) error {
					return errors.Join(exec(ctx, order), openRows(ctx, s))
				}, Says: "rows open"},
				"isolation":      {Do: sqlshop.Statements("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", order), Rows: []string{"mine"}},
				"RESET ALL":      {Do: sqlshop.Statements(order, "RESET ALL"), Says: "or has reset all settings"},
				"DEALLOCATE ALL": {Do: sqlshop.Statements(order, "DEALLOCATE ALL"), Rows: []string{"mine"}},
			})
		})
	}
}

// shops open shops over pgx and over package database/sql.
var shops = map[string]func(t *testing.T) *shop{
	"pgx":          func(t *testing.T) *shop { t.Helper(); return openShop(t, direct(t)) },
	"database/sql": openSQLShop,
}

// sessionsInTransaction returns the sessions that are idle in a transaction.
func (s *shop) sessionsInTransaction(tb testing.TB) int {
	tb.Helper()
	return sessions(tb, s.db, "state LIKE 'idle in transaction%'")
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

// A connection whose context ended when its COMMIT had just been answered is not used again.
func TestConnectionAfterTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]func(t *testing.T, cfg *pgxpool.Config) *pgstore.Store{
		"pgx": func(t *testing.T, cfg *pgxpool.Config) *pgstore.Store {
			t.Helper()
			pool := must.Get(pgxpool.NewWithConfig(t.Context(), cfg))(t)
			t.Cleanup(pool.Close)
			return pgstore.New(pool)
		},
		"database/sql": func(t *testing.T, cfg *pgxpool.Config) *pgstore.Store {
			t.Helper()
			db := stdlib.OpenDB(*cfg.ConnConfig)
			db.SetMaxOpenConns(1)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			return pgstore.NewSQL(db)
		},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			s := openShop(t, direct(t))
			ctx, cancel := context.WithCancel(t.Context())
			cfg := s.pool.Config()
			cfg.MaxConns = 1
			ended := make(chan struct{})
			cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &endsAtCommit{c, cancel, ended}, err
			}
			store := over(t, cfg)
			t.Cleanup(store.Close)
			sqlshop.Claim(t, store, "k", "t")
			_, tx, err := store.Begin(t.Context(), "k", "t")
			require.NoError(t, err)
			must.Yes(t)(tx.Settle(ctx, []byte("receipt"), time.Minute))
			<-ended
			_, tx, err = store.Begin(t.Context(), "another", "t")
			require.NoError(t, err)
			require.NoError(t, tx.Rollback(t.Context()))
		})
	}
}

// endsAtCommit ends a context when COMMIT is answered, and goes on when the end has set an expired
// deadline.
type endsAtCommit struct {
	net.Conn

	cancel context.CancelFunc
	ended  chan struct{}
}

func (c *endsAtCommit) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("COMMIT")) {
		c.cancel()
		<-c.ended
	}
	return n, err
}

func (c *endsAtCommit) SetDeadline(at time.Time) error {
	if !at.IsZero() && at.Before(time.Now()) {
		close(c.ended)
	}
	return c.Conn.SetDeadline(at)
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

// The receipt waits for a statement that a goroutine has in progress over database/sql, for as
// long as its budget. The error names that cause.
func TestGoroutineThatGoesOnForLongerThanTheBudget(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for budgets in real time")
	t.Parallel()
	s := openSQLShop(t)
	ended := make(chan struct{})
	_, _, err := s.locker(t, lock.WithBudget(2*time.Second)).Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) {
		lasting := context.WithoutCancel(ctx)
		go func() {
			defer close(ended)
			_ = exec(lasting, "SELECT pg_sleep(20)")
		}()
		eventually(t, func() bool { return sessions(t, s.db, "wait_event = 'PgSleep'") == 1 })
		return nil, nil
	})
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.ErrorContains(t, err, "uses it still")
	<-ended
}

// A connection that the store has cut leaves a pool of pgx below the *sql.DB, too.
func TestCutConnectionLeavesThePoolBelow(t *testing.T) {
	t.Parallel()
	store := pgstore.NewSQL(openSQL(t, database(t)))
	t.Cleanup(store.Close)
	migrate(t, store)
	for range 3 {
		work, tx, err := store.Begin(t.Context(), "o:key", "token")
		require.NoError(t, err)
		require.NoError(t, exec(work, "ROLLBACK")) // a pool gives up a connection in a transaction by itself
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, must.Err(tx.Settle(ctx, []byte("done"), time.Hour)))
	}
}
