package snippets_test

import (
	"cmp"
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/mysqlstore"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

const handlersSchema = `
	CREATE TABLE orders (run int NOT NULL, beside boolean NOT NULL DEFAULT false);
	CREATE TABLE items (id int PRIMARY KEY);
	CREATE TABLE notes (run int, item int);
	INSERT INTO items VALUES (1);
`

const insertRun = "INSERT INTO orders (run) VALUES ($1)"

// databases has the database of each desk. Each desk over SQLite has its own file.
type databases struct {
	postgres string // its URL
	mariadb  *mysql.Config
}

func handlersDatabases(t *testing.T) (at databases) {
	t.Helper()
	at.postgres = pgtest.Start(t, "max_prepared_transactions=10").DatabaseURL(t)
	conn, err := pgx.Connect(t.Context(), at.postgres)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), handlersSchema+pgstore.Schema)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))

	at.mariadb, err = mysql.ParseDSN(mysqltest.Start(t).DatabaseDSN(t, "multiStatements=true"))
	require.NoError(t, err)
	at.mariadb.Logger = &mysql.NopLogger{} // of sessions that were killed
	db := openMariaDB(t, at.mariadb)
	_, err = db.ExecContext(t.Context(), handlersSchema+mysqlstore.Schema)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return at
}

func openMariaDB(t *testing.T, cfg *mysql.Config) *sql.DB {
	t.Helper()
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	return sql.OpenDB(connector)
}

// guarded is a store whose receipts are committed with the work.
type guarded interface {
	lock.Store
	lock.Transactor
	Close()
}

// open connects the desk and its office.
func (d *desk) open(t *testing.T, at databases, h *handling) guarded {
	t.Helper()
	switch d.over {
	case overMySQL:
		return d.openMariaDB(t, at.mariadb, h)
	case overSQLite:
		return d.openSQLite(t, h)
	default:
		return d.openPostgres(t, at.postgres, h)
	}
}

func (d *desk) openPostgres(t *testing.T, url string, h *handling) guarded {
	t.Helper()
	admin, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	d.office = overPostgres{admin}
	require.NoError(t, d.office.exec(t.Context(), "TRUNCATE orders, items; TRUNCATE latch_entries; INSERT INTO items VALUES (1); "+h.setup))
	if d.over == overSQL {
		cfg, err := pgx.ParseConfig(url)
		require.NoError(t, err)
		d.db = stdlib.OpenDB(*cfg)
		d.db.SetMaxOpenConns(cmp.Or(h.pool, 10))
		return pgstore.NewSQL(d.db)
	}
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.MaxConns = int32(cmp.Or(h.pool, 10))
	d.pool, err = pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	return pgstore.New(d.pool)
}

func (d *desk) openMariaDB(t *testing.T, cfg *mysql.Config, h *handling) guarded {
	t.Helper()
	d.office = overDB{openMariaDB(t, cfg), "SELECT COUNT(*) FROM information_schema.innodb_trx"}
	require.NoError(t, d.office.exec(t.Context(), "DELETE FROM orders; DELETE FROM items; DELETE FROM latch_entries; INSERT INTO items VALUES (1); "+h.setup))
	d.db = openMariaDB(t, cfg)
	d.db.SetMaxOpenConns(cmp.Or(h.pool, 10))
	return mysqlstore.New(d.db, cfg)
}

func (d *desk) openSQLite(t *testing.T, h *handling) guarded {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	store, err := sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	admin, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	admin.SetMaxOpenConns(1)
	d.office, d.db = overDB{admin, "BEGIN IMMEDIATE; ROLLBACK; SELECT 0"}, store.DB()
	require.NoError(t, d.office.exec(t.Context(), handlersSchema+h.setup))
	return store
}

// reads returns a statement as the database of the desk reads it.
func (d *desk) reads(statement string) string {
	if d.over == overMySQL {
		return strings.ReplaceAll(statement, "$1", "?")
	}
	return statement
}

// sqlTx returns the transaction of the guard, nil over pgx.
func sqlTx(ctx context.Context) *sql.Tx {
	for _, of := range []func(context.Context) (*sql.Tx, bool){pgstore.SQLTx, mysqlstore.Tx, sqlitestore.Tx} {
		if tx, ok := of(ctx); ok {
			return tx
		}
	}
	return nil
}

// office is a connection to the database of a desk.
type office interface {
	exec(ctx context.Context, statements string) error
	// orders counts the orders that were committed, by run, and those that were not inserted in the transaction.
	orders(ctx context.Context) (byRun map[int]int, beside int, err error)
	// open counts the sessions that are in a transaction.
	open(ctx context.Context) (n int, err error)
	close(ctx context.Context) error
}

const countOrders = "SELECT run, beside, count(*) FROM orders GROUP BY run, beside"

// tallied are rows of pgx or database/sql.
type tallied interface {
	Next() bool
	Scan(into ...any) error
	Err() error
}

func counted(rows tallied) (byRun map[int]int, beside int, err error) {
	byRun = map[int]int{}
	for rows.Next() {
		var run, n int
		var aside bool
		if err := rows.Scan(&run, &aside, &n); err != nil {
			return nil, 0, err
		}
		if aside {
			beside += n
		} else {
			byRun[run] = n
		}
	}
	return byRun, beside, rows.Err()
}

type overPostgres struct{ *pgx.Conn }

// admin returns the office over PostgreSQL.
func (d *desk) admin() *pgx.Conn { return d.office.(overPostgres).Conn }

func (o overPostgres) exec(ctx context.Context, statements string) error {
	_, err := o.Exec(ctx, statements)
	return err
}

func (o overPostgres) orders(ctx context.Context) (byRun map[int]int, beside int, err error) {
	rows, err := o.Query(ctx, countOrders)
	if err != nil {
		return nil, 0, err
	}
	return counted(rows)
}

func (o overPostgres) open(ctx context.Context) (n int, err error) {
	err = o.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'").Scan(&n)
	return n, err
}

func (o overPostgres) close(ctx context.Context) error { return o.Close(ctx) }

// mariaDBLooks is a little longer than the time for which MariaDB must not be asked for its transactions before it looks for
// them again.
const mariaDBLooks = 120 * time.Millisecond

type overDB struct {
	*sql.DB
	sessions string // counts those that are in a transaction
}

func (o overDB) exec(ctx context.Context, statements string) error {
	if statements == "" {
		return nil
	}
	_, err := o.ExecContext(ctx, statements)
	return err
}

func (o overDB) orders(ctx context.Context) (byRun map[int]int, beside int, err error) {
	rows, err := o.QueryContext(ctx, countOrders)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	return counted(rows)
}

func (o overDB) open(ctx context.Context) (n int, err error) {
	if err = o.QueryRowContext(ctx, o.sessions).Scan(&n); n > 0 {
		time.Sleep(mariaDBLooks)
	}
	return n, err
}

func (o overDB) close(context.Context) error { return o.Close() }
