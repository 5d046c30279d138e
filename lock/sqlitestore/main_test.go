package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("LATCH_TEST_OPEN_FILE"); path != "" {
		runOpen(path)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// open returns a store over a file, with its tables.
func open(tb testing.TB, path string, opts ...sqlitestore.Option) *sqlitestore.Store {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	s := must.Get(sqlitestore.Open(ctx, path, opts...))(tb)
	tb.Cleanup(s.Close)
	return s
}

// runOpen opens a store and claims a key, and prints the class and the text of the error, and the
// holder. It closes the store at the end of its input.
func runOpen(path string) {
	var e lock.Entry
	s, err := sqlitestore.Open(context.Background(), path)
	if err == nil {
		defer s.Close()
		e, err = s.Claim(context.Background(), "k", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute})
	}
	_, _ = fmt.Fprintln(os.Stdout, errors.Is(err, lock.ErrDenied), lock.Class(err), err, e.Token)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// file returns the path of a file of the test's own.
func file(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "shop.db")
}

// run executes a statement, which must not fail.
func run(tb testing.TB, on interface {
	ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
}, statement string, args ...any,
) {
	tb.Helper()
	must.Get(on.ExecContext(tb.Context(), statement, args...))(tb)
}

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
	run(tb, s.DB, statement, args...)
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
	db := must.Get(sql.Open("sqlite", path))(tb)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	conn := must.Get(db.Conn(tb.Context()))(tb)
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}
