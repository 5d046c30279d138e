package mysqlstore_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

// newStore returns a store over a database that it does not make.
func newStore(tb testing.TB, work, own string, opts ...mysqlstore.Option) *mysqlstore.Store {
	tb.Helper()
	db := must.Get(sql.Open("mysql", work))(tb)
	s := mysqlstore.New(db, must.Get(mysql.ParseDSN(own))(tb), opts...)
	tb.Cleanup(func() {
		s.Close()
		require.NoError(tb, db.Close())
	})
	return s
}

// Each error of Check has a cure, and so has a claim over such a server.
func TestCheck(t *testing.T) {
	t.Parallel()
	server := mysqltest.Shared(t)
	port, err := process.FreePort()
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		change  string // of a complete database; its name replaces DB
		user    string
		says    string
		healthy bool // claims work nevertheless
	}{
		"nothing":         {change: "DO 1", healthy: true},
		"no table":        {change: "DROP TABLE latch_entries", says: "the table is not there: call Migrate, or run Schema"},
		"no column":       {change: "ALTER TABLE latch_entries DROP COLUMN owner", says: "the table lacks a column"},
		"no fence table":  {change: "DROP TABLE latch_entries_fence", says: "the table is not there", healthy: true},
		"other engine":    {change: "ALTER TABLE latch_entries_fence ENGINE = MyISAM", says: "ALTER TABLE latch_entries_fence ENGINE = InnoDB", healthy: true},
		"no privilege":    {change: "CREATE USER reader_DB; GRANT SELECT ON DB.* TO reader_DB", user: "reader_DB", says: "the user lacks a privilege"},
		"fewest":          {change: "CREATE USER few_DB; GRANT SELECT, INSERT, UPDATE, DELETE ON DB.latch_entries TO few_DB; GRANT SELECT, INSERT, DELETE ON DB.latch_entries_fence TO few_DB", user: "few_DB", healthy: true},
		"no right at all": {change: "CREATE USER none_DB", user: "none_DB", says: "the user lacks a privilege"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			db := server.Database(t)
			complete := open(t, server.DSN(db, ""))
			complete.Close()
			server.Exec(t, db, strings.ReplaceAll(tt.change, "DB", db))
			dsn := server.DSN(db, strings.ReplaceAll(tt.user, "DB", db))
			s := newStore(t, dsn, dsn)
			err := s.Check(t.Context())
			if tt.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.says)
				require.ErrorIs(t, err, lock.ErrDenied)
			}
			_, err = s.Claim(t.Context(), "k", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute})
			if tt.healthy {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, lock.ErrDenied)
				require.ErrorIs(t, err, lock.ErrNotApplied)
			}
			if tt.user != "" {
				server.Exec(t, "", "DROP USER "+strings.ReplaceAll(tt.user, "DB", db))
			}
		})
	}
	parallel.Run(t, "no server", func(t *testing.T) {
		dsn := fmt.Sprintf("root@tcp(127.0.0.1:%d)/shop", port)
		err := newStore(t, dsn, dsn).Check(t.Context())
		require.ErrorContains(t, err, "the server cannot be reached")
		require.ErrorIs(t, err, lock.ErrNotApplied)
		require.Equal(t, "dial", lock.Class(err))
	})
	parallel.Run(t, "another server", func(t *testing.T) {
		other := mysqltest.Start(t, "read-only=ON")
		db := server.Database(t)
		open(t, server.DSN(db, ""))
		s := newStore(t, other.DSN("", ""), server.DSN(db, ""))
		require.ErrorContains(t, s.Check(t.Context()), "the work's connections lead to another server")
	})
}

// A server that cannot be written to answers no claim, and no question.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	db := server.Database(t)
	server.Exec(t, db, "CREATE USER shop; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON "+db+".* TO shop")
	s := open(t, server.DSN(db, "shop"))
	claim := lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}
	must.Entry(t)(s.Claim(t.Context(), "k", claim))
	server.Exec(t, "", "SET GLOBAL read_only = 1")
	require.ErrorContains(t, s.Check(t.Context()), "the server cannot be written to")
	_, err := s.Claim(t.Context(), "other", claim)
	require.ErrorIs(t, err, lock.ErrDenied)
	require.ErrorIs(t, err, lock.ErrNotApplied)
	_, tx, err := s.Begin(t.Context(), "k", "t")
	require.NoError(t, err)
	_, err = tx.Settle(t.Context(), []byte("receipt"), time.Hour)
	require.ErrorIs(t, err, lock.ErrNotApplied)
	require.ErrorIs(t, err, lock.ErrUnavailable)
}

func TestMigrateByManyAtOnce(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	sqlshop.TestMigrations(t, func(t *testing.T) sqlshop.Store { t.Helper(); return newStore(t, dsn, dsn) })
}

// The names of tables are taken as they are written.
func TestWithTable(t *testing.T) {
	t.Parallel()
	server := mysqltest.Shared(t)
	for mode, params := range map[string][]string{"": nil, "ansi": {"sql_mode=ANSI_QUOTES"}} {
		db := server.Database(t) + "$1"
		server.Exec(t, "", "CREATE DATABASE `"+db+"`")
		t.Cleanup(func() { server.Exec(t, "", "DROP DATABASE `"+db+"`") })
		for _, name := range []string{"select", "a$1", "with `quotes`", "späte \"Sperren\"", "x`; DROP TABLE orders; --", db + ".other"} {
			sqlshop.UseTable(t, open(t, server.DSN(db, "", params...), mysqlstore.WithTable(name)), mode+name)
		}
	}
	for _, name := range []string{"", "a.b.c", ".a", "a.", "a\x00", "a ", "\xff", strings.Repeat("a", 49)} {
		require.Panics(t, func() { mysqlstore.WithTable(name) }, name)
	}
	require.Panics(t, func() { mysqlstore.New(nil, mysql.NewConfig()) })
	require.Panics(t, func() { mysqlstore.New(new(sql.DB), nil) })
	require.Panics(t, func() { mysqlstore.New(new(sql.DB), mysql.NewConfig(), nil) })
}

// A store that was closed, or cannot be opened, answers each call with an error.
func TestUnusable(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	sqlshop.TestClosed(t, open(t, dsn))

	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer db.Close()
	s := mysqlstore.New(db, &mysql.Config{TLSConfig: "unknown"})
	defer s.Close()
	require.ErrorIs(t, s.Check(t.Context()), lock.ErrDenied)
	_, _, err = s.Begin(t.Context(), "k", "t")
	require.ErrorIs(t, err, lock.ErrDenied)
}
