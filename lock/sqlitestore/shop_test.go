package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

var quiet = slog.New(slog.DiscardHandler)

// shop is a store and a table of orders without a unique constraint.
type shop struct {
	store *sqlitestore.Store
	path  string
}

func openShop(tb testing.TB) *shop {
	tb.Helper()
	s := &shop{path: file(tb)}
	s.store = open(tb, s.path)
	s.exec(tb, "CREATE TABLE orders (name TEXT NOT NULL)")
	return s
}

func (s *shop) exec(tb testing.TB, statement string, args ...any) {
	tb.Helper()
	_, err := s.store.DB().ExecContext(tb.Context(), statement, args...)
	require.NoError(tb, err)
}

// orders returns the rows that were committed.
func (s *shop) orders(tb testing.TB) (names []string) {
	tb.Helper()
	rows, err := s.store.DB().QueryContext(tb.Context(), "SELECT name FROM orders ORDER BY rowid")
	require.NoError(tb, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(tb, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(tb, rows.Err())
	return names
}

// locker returns a Locker with transactions over the store of s, closed with the test.
func (s *shop) locker(tb testing.TB, opts ...lock.Option) *lock.Locker {
	tb.Helper()
	return lockerOver(tb, s.store, opts...)
}

func lockerOver(tb testing.TB, store lock.Store, opts ...lock.Option) *lock.Locker {
	tb.Helper()
	// A long budget: the machine of a test may be busy.
	l := lock.New(store, append([]lock.Option{lock.WithTransaction(), lock.WithLogger(quiet), lock.WithBudget(5 * time.Second)}, opts...)...)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 10*time.Second)
		defer cancel()
		require.NoError(tb, l.Close(ctx))
	})
	return l
}

var errNoTx = errors.New("no transaction")

// exec executes a statement in the transaction of the work.
func exec(ctx context.Context, statement string, args ...any) error {
	tx, ok := sqlitestore.Tx(ctx)
	if !ok {
		return errNoTx
	}
	_, err := tx.ExecContext(ctx, statement, args...)
	return err
}

const insert = "INSERT INTO orders VALUES (?)"

// order returns work that makes an order, and returns its name.
func order(name string) func(ctx context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return []byte(name), exec(ctx, insert, name) }
}

// claim claims a key for a minute.
func claim(tb testing.TB, s lock.Store, key, token string) {
	tb.Helper()
	e, err := s.Claim(tb.Context(), key, lock.Claim{Token: token, Attempt: 1, Lease: time.Minute})
	require.NoError(tb, err)
	require.Equal(tb, lock.Held, e.State)
	require.Equal(tb, token, e.Token)
}

// begin claims a key and begins the transaction of its work.
func (s *shop) begin(tb testing.TB, key string) (context.Context, lock.Transaction, *sql.Tx) {
	tb.Helper()
	claim(tb, s.store, key, "token of "+key)
	ctx, tx, err := s.store.Begin(tb.Context(), key, "token of "+key)
	require.NoError(tb, err)
	own, ok := sqlitestore.Tx(ctx)
	require.True(tb, ok)
	return ctx, tx, own
}

// connect returns another program's connection to a file.
func connect(tb testing.TB, path string) *sql.Conn {
	tb.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	conn, err := db.Conn(tb.Context())
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}
