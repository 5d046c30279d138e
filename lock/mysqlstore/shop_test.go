package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

var quiet = slog.New(slog.DiscardHandler)

const ordersTable = "CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(100) NOT NULL) ENGINE = InnoDB"

// shop is a store and a table of orders without a unique constraint.
type shop struct {
	store *mysqlstore.Store
	name  string
	db    *sql.DB // not of the work
}

func openShop(tb testing.TB, params ...string) *shop {
	tb.Helper()
	server := mysqltest.Shared(tb)
	return shopOf(tb, server, server.Addr(), params...)
}

// shopOf returns a shop whose store reaches the server at addr.
func shopOf(tb testing.TB, server *mysqltest.Server, addr string, params ...string) *shop {
	tb.Helper()
	name := server.Database(tb)
	s := &shop{store: open(tb, through(server, server.DSN(name, "", params...), addr)), name: name, db: dial(tb, server.DSN(name, ""))}
	s.exec(tb, ordersTable)
	return s
}

func (s *shop) exec(tb testing.TB, statement string, args ...any) {
	tb.Helper()
	_, err := s.db.ExecContext(tb.Context(), statement, args...)
	require.NoError(tb, err)
}

// orders returns the rows that were committed.
func (s *shop) orders(tb testing.TB) (names []string) {
	tb.Helper()
	rows, err := s.db.QueryContext(tb.Context(), "SELECT name FROM orders ORDER BY id")
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

// lockerOver returns one whose calls have time enough on a machine that is busy with other things.
func lockerOver(tb testing.TB, store lock.Store, opts ...lock.Option) *lock.Locker {
	tb.Helper()
	l := lock.New(store, append([]lock.Option{lock.WithTransaction(), lock.WithLogger(quiet), lock.WithBudget(5 * time.Second)}, opts...)...)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 20*time.Second)
		defer cancel()
		require.NoError(tb, l.Close(ctx))
	})
	return l
}

var errNoTx = errors.New("no transaction")

// exec executes a statement in the transaction of the work.
func exec(ctx context.Context, statement string, args ...any) error {
	tx, ok := mysqlstore.Tx(ctx)
	if !ok {
		return errNoTx
	}
	_, err := tx.ExecContext(ctx, statement, args...)
	return err
}

const insert = "INSERT INTO orders (name) VALUES (?)"

// order returns work that makes an order, and returns its name.
func order(name string) func(ctx context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return []byte(name), exec(ctx, insert, name) }
}

// begin claims a key and begins the transaction of its work.
func (s *shop) begin(tb testing.TB, key string) (context.Context, lock.Transaction) {
	tb.Helper()
	token := "token of " + key
	e, err := s.store.Claim(tb.Context(), key, lock.Claim{Token: token, Attempt: 1, Lease: time.Minute})
	require.NoError(tb, err)
	require.Equal(tb, []any{lock.Held, token}, []any{e.State, e.Token})
	ctx, tx, err := s.store.Begin(tb.Context(), key, token)
	require.NoError(tb, err)
	return ctx, tx
}
