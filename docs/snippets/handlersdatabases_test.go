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

	"github.com/httplatch/httplatch/internal/testkit/must"
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

type databases struct {
	postgres string // its URL
	mariadb  *mysql.Config
}

func handlersDatabases(t *testing.T) (at databases) {
	t.Helper()
	at.postgres = pgtest.Start(t, "max_prepared_transactions=10").DatabaseURL(t)
	db := openPostgres(t, at.postgres)
	must.Get(db.ExecContext(t.Context(), handlersSchema+pgstore.Schema))(t)
	require.NoError(t, db.Close())

	at.mariadb = must.Get(mysql.ParseDSN(mysqltest.Start(t).DatabaseDSN(t, "multiStatements=true")))(t)
	at.mariadb.Logger = &mysql.NopLogger{} // of sessions that were killed
	db = openMariaDB(t, at.mariadb)
	must.Get(db.ExecContext(t.Context(), handlersSchema+mysqlstore.Schema))(t)
	require.NoError(t, db.Close())
	return at
}

func openPostgres(t *testing.T, url string) *sql.DB {
	t.Helper()
	return stdlib.OpenDB(*must.Get(pgx.ParseConfig(url))(t))
}

func openMariaDB(t *testing.T, cfg *mysql.Config) *sql.DB {
	t.Helper()
	return sql.OpenDB(must.Get(mysql.NewConnector(cfg))(t))
}

type guarded interface {
	lock.Store
	lock.Transactor
	Close()
}

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
	const sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'"
	d.office = office{openPostgres(t, url), sessions}
	require.NoError(t, d.office.exec(t.Context(), "TRUNCATE orders, items; TRUNCATE latch_entries; INSERT INTO items VALUES (1); "+h.setup))
	if d.over == overSQL {
		d.db = openPostgres(t, url)
		d.db.SetMaxOpenConns(cmp.Or(h.pool, 10))
		return pgstore.NewSQL(d.db)
	}
	cfg := must.Get(pgxpool.ParseConfig(url))(t)
	cfg.MaxConns = int32(cmp.Or(h.pool, 10))
	d.pool = must.Get(pgxpool.NewWithConfig(t.Context(), cfg))(t)
	return pgstore.New(d.pool)
}

func (d *desk) openMariaDB(t *testing.T, cfg *mysql.Config, h *handling) guarded {
	t.Helper()
	d.office = office{openMariaDB(t, cfg), "SELECT COUNT(*) FROM information_schema.innodb_trx"}
	require.NoError(t, d.office.exec(t.Context(), "DELETE FROM orders; DELETE FROM items; DELETE FROM latch_entries; INSERT INTO items VALUES (1); "+h.setup))
	d.db = openMariaDB(t, cfg)
	d.db.SetMaxOpenConns(cmp.Or(h.pool, 10))
	return mysqlstore.New(d.db, cfg)
}

func (d *desk) openSQLite(t *testing.T, h *handling) guarded {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	store := must.Get(sqlitestore.Open(t.Context(), path))(t)
	admin := must.Get(sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)"))(t)
	admin.SetMaxOpenConns(1)
	d.office, d.db = office{admin, "BEGIN IMMEDIATE; ROLLBACK; SELECT 0"}, store.DB()
	require.NoError(t, d.office.exec(t.Context(), handlersSchema+h.setup))
	return store
}

func (d *desk) reads(statement string) string {
	if d.over == overMySQL {
		return strings.ReplaceAll(statement, "$1", "?")
	}
	return statement
}

func sqlTx(ctx context.Context) *sql.Tx {
	for _, of := range []func(context.Context) (*sql.Tx, bool){pgstore.SQLTx, mysqlstore.Tx, sqlitestore.Tx} {
		if tx, ok := of(ctx); ok {
			return tx
		}
	}
	return nil
}

// mariaDBLooks is a little longer than the time for which MariaDB must not be asked for its transactions before it looks for
// them again.
const mariaDBLooks = 120 * time.Millisecond

type office struct {
	*sql.DB
	sessions string // counts those that are in a transaction
}

func (o office) exec(ctx context.Context, statements string) error {
	if statements == "" {
		return nil
	}
	_, err := o.ExecContext(ctx, statements)
	return err
}

func (o office) orders(ctx context.Context) (byRun map[int]int, beside int, err error) {
	rows, err := o.QueryContext(ctx, "SELECT run, beside, count(*) FROM orders GROUP BY run, beside")
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
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

func (o office) open(ctx context.Context) (n int, err error) {
	if err = o.QueryRowContext(ctx, o.sessions).Scan(&n); n > 0 {
		time.Sleep(mariaDBLooks)
	}
	return n, err
}
