package mysqlstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(mysqltest.Main(m)) }

// open returns a store in a database, with its tables.
func open(tb testing.TB, dsn string, opts ...mysqlstore.Option) *mysqlstore.Store {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	s := must.Get(mysqlstore.Open(ctx, dsn, opts...))(tb)
	tb.Cleanup(s.Close)
	return s
}

// database returns the DSN of a database of the test's own.
func database(tb testing.TB, params ...string) string {
	tb.Helper()
	return mysqltest.Shared(tb).DatabaseDSN(tb, params...)
}

const (
	ordersTable = "CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(100) NOT NULL) ENGINE = InnoDB"
	insert      = "INSERT INTO orders (name) VALUES (?)"
)

// shop is a store and a table of orders without a unique constraint.
type shop struct {
	*sqlshop.Shop

	store *mysqlstore.Store
	name  string
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
	s := &shop{store: open(tb, through(server, server.DSN(name, "", params...), addr)), name: name}
	s.Shop = &sqlshop.Shop{Store: s.store, DB: dial(tb, server.DSN(name, "")), Tx: tx, Exec: exec, Insert: insert}
	s.exec(tb, ordersTable)
	return s
}

// tx returns the transaction of the work, nil outside of it.
func tx(ctx context.Context) *sql.Tx {
	own, _ := mysqlstore.Tx(ctx)
	return own
}

// exec executes a statement in the transaction of the work.
var exec = sqlshop.ExecIn(mysqlstore.Tx)

func (s *shop) exec(tb testing.TB, statement string, args ...any) {
	tb.Helper()
	must.Get(s.DB.ExecContext(tb.Context(), statement, args...))(tb)
}

// order returns work that makes an order, and returns its name.
func order(name string) func(ctx context.Context) ([]byte, error) {
	return (&sqlshop.Shop{Exec: exec, Insert: insert}).Order(name)
}

// begin claims a key and begins the transaction of its work.
func (s *shop) begin(tb testing.TB, key string) (context.Context, lock.Transaction) {
	tb.Helper()
	return sqlshop.Begin(tb, s.store, key)
}
