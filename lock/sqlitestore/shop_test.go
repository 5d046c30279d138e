package sqlitestore_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// shop is a store and a table of orders without a unique constraint.
type shop struct {
	*sqlshop.Shop

	store *sqlitestore.Store
	path  string
}

const insert = "INSERT INTO orders (name) VALUES (?)"

func openShop(tb testing.TB) *shop {
	tb.Helper()
	return shopAt(tb, file(tb))
}

// shopAt returns a shop in a new file.
func shopAt(tb testing.TB, path string) *shop {
	tb.Helper()
	s := &shop{path: path, store: open(tb, path)}
	s.Shop = &sqlshop.Shop{Store: s.store, DB: s.store.DB(), Tx: tx, Exec: exec, Insert: insert}
	s.exec(tb, "CREATE TABLE orders (name TEXT NOT NULL)")
	return s
}

// tx returns the transaction of the work, nil outside of it.
func tx(ctx context.Context) *sql.Tx {
	own, _ := sqlitestore.Tx(ctx)
	return own
}

// exec executes a statement in the transaction of the work.
var exec = sqlshop.ExecIn(sqlitestore.Tx)

func (s *shop) exec(tb testing.TB, statement string, args ...any) {
	tb.Helper()
	_, err := s.DB.ExecContext(tb.Context(), statement, args...)
	require.NoError(tb, err)
}

// begin claims a key and begins the transaction of its work.
func (s *shop) begin(tb testing.TB, key string) (context.Context, lock.Transaction, *sql.Tx) {
	tb.Helper()
	ctx, work := sqlshop.Begin(tb, s.store, key)
	return ctx, work, tx(ctx)
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
