// Package sqlshop has the tests that lock/pgstore, lock/mysqlstore and lock/sqlitestore share, over a
// shop: a database with orders, which nothing keeps from being doubled. Each store opens the shop with
// its own server or file, and adds what only it has.
package sqlshop

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// Store has the methods of all three stores.
type Store interface {
	lock.Store
	lock.Transactor
	lock.Inspector
	Check(ctx context.Context) error
	Migrate(ctx context.Context) error
	Close()
}

// Shop is a store and a table of orders.
type Shop struct {
	Store  Store
	DB     *sql.DB                                                        // not of the work
	Tx     func(context.Context) *sql.Tx                                  // of the work; nil if it has another type
	Exec   func(ctx context.Context, statement string, args ...any) error // in the transaction of the work
	Insert string                                                         // inserts an order, whose name is its parameter
	InTx   func(tb testing.TB) (sessions int)                             // that are idle in a transaction; may be nil
}

// Quiet discards all.
var Quiet = slog.New(slog.DiscardHandler)

// ErrNoTx is the error of Exec outside of work.
var ErrNoTx = errors.New("no transaction")

// ExecIn returns an Exec over the *sql.Tx of a store.
func ExecIn(tx func(context.Context) (*sql.Tx, bool)) func(ctx context.Context, statement string, args ...any) error {
	return func(ctx context.Context, statement string, args ...any) error {
		own, ok := tx(ctx)
		if !ok {
			return ErrNoTx
		}
		_, err := own.ExecContext(ctx, statement, args...)
		return err
	}
}

// Locker returns a Locker with transactions over a store, closed with the test. Its calls have time
// enough on a machine that is busy with other things.
func Locker(tb testing.TB, store lock.Store, opts ...lock.Option) *lock.Locker {
	tb.Helper()
	l := lock.New(store, append([]lock.Option{lock.WithTransaction(), lock.WithLogger(Quiet), lock.WithBudget(5 * time.Second)}, opts...)...)
	tb.Cleanup(func() { CloseLocker(tb, l) })
	return l
}

// CloseLocker closes a Locker also when the test is over.
func CloseLocker(tb testing.TB, l *lock.Locker) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 20*time.Second)
	defer cancel()
	require.NoError(tb, l.Close(ctx))
}

// Orders returns the orders that were committed.
func (s *Shop) Orders(tb testing.TB) (names []string) {
	tb.Helper()
	return Names(tb, s.DB, "SELECT name FROM orders")
}

// Names returns the one column of a query.
func Names(tb testing.TB, db *sql.DB, query string) (names []string) {
	tb.Helper()
	rows, err := db.QueryContext(tb.Context(), query)
	require.NoError(tb, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		require.NoError(tb, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(tb, rows.Err())
	return names
}

// Order returns work that makes an order, and returns its name.
func (s *Shop) Order(name string) func(ctx context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return []byte(name), s.Exec(ctx, s.Insert, name) }
}

// Claim claims a key for a minute.
func Claim(tb testing.TB, s lock.Store, key, token string) {
	tb.Helper()
	e, err := s.Claim(tb.Context(), key, lock.Claim{Token: token, Attempt: 1, Lease: time.Minute})
	require.NoError(tb, err)
	require.Equal(tb, []any{lock.Held, token}, []any{e.State, e.Token})
}

// Await waits until the entry of a key has a state.
func Await(tb testing.TB, s lock.Store, key string, state lock.State) {
	tb.Helper()
	require.Eventually(tb, func() bool {
		e, err := s.Get(tb.Context(), key)
		return err == nil && e.State == state
	}, 20*time.Second, time.Millisecond)
}

// Begin claims a key and begins the transaction of its work.
func Begin(tb testing.TB, s Store, key string) (context.Context, lock.Transaction) {
	tb.Helper()
	Claim(tb, s, key, "token of "+key)
	ctx, tx, err := s.Begin(tb.Context(), key, "token of "+key)
	require.NoError(tb, err)
	return ctx, tx
}
