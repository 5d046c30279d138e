package sqlitestore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// An error of the files is a sentence with a cure, and has a class.
func TestFilesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prepare func(t *testing.T, path string) string
		class   string
		text    string
	}{
		"no directory": {func(_ *testing.T, path string) string { return path + "/none/shop.db" }, "cantopen", "make the directory"},
		"a directory": {func(t *testing.T, path string) string {
			require.NoError(t, os.Mkdir(path, 0o700))
			return path
		}, "cantopen", "make the directory"},
		"not a database": {func(t *testing.T, path string) string {
			require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("not a database. ", 1000)), 0o600))
			return path
		}, "notadb", "not a database of SQLite"},
		"claims that are no database": {func(t *testing.T, path string) string {
			require.NoError(t, os.WriteFile(path+"-latch", []byte(strings.Repeat("not a database. ", 1000)), 0o600))
			return path
		}, "notadb", "shop.db-latch"},
		"a damaged file": {func(t *testing.T, path string) string {
			open(t, path).Close()
			content := must.Get(os.ReadFile(path))(t)
			for i := 1000; i < len(content); i++ {
				content[i] ^= 0xa5
			}
			require.NoError(t, os.WriteFile(path, content, 0o600))
			return path
		}, "corrupt", "backup"},
		"another table": {func(t *testing.T, path string) string {
			run(t, connect(t, path), "CREATE TABLE latch_entries (id INTEGER)")
			return path
		}, "_OTHER", "the table lacks a column"},
		"in memory": {func(*testing.T, string) string { return ":memory:" }, "_OTHER", "memstore"},
		"no name":   {func(*testing.T, string) string { return "" }, "_OTHER", "memstore"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			s, err := sqlitestore.Open(t.Context(), tt.prepare(t, file(t)))
			require.Nil(t, s)
			require.ErrorContains(t, err, tt.text)
			require.ErrorIs(t, err, lock.ErrDenied)
			require.Equal(t, tt.class, lock.Class(err), "%v", err)
		})
	}
}

// New and Check report what Open would have made.
func TestDatabasesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	path := file(t)
	run(t, connect(t, path), "CREATE TABLE orders (name TEXT)")
	db := func(name string) *sql.DB {
		db := must.Get(sql.Open("sqlite", name))(t)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	}
	foreign := sql.OpenDB(strange{})
	t.Cleanup(func() { require.NoError(t, foreign.Close()) })
	wal := file(t)
	run(t, connect(t, wal), "PRAGMA journal_mode = WAL; CREATE TABLE orders (name TEXT)")
	for name, tt := range map[string]struct {
		db   *sql.DB
		text string
	}{
		"not in WAL mode": {db(path), "PRAGMA journal_mode = WAL"},
		"no table":        {db(wal), "call Migrate"},
		"in memory":       {db(":memory:"), "memstore"},
		"another driver":  {foreign, "modernc.org/sqlite"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			s := sqlitestore.New(tt.db)
			t.Cleanup(s.Close)
			err := s.Check(t.Context())
			require.ErrorContains(t, err, tt.text)
			require.ErrorIs(t, err, lock.ErrDenied)
			require.ErrorIs(t, err, lock.ErrNotApplied)
			if tt.text == "call Migrate" || strings.HasPrefix(tt.text, "PRAGMA") {
				require.NoError(t, s.Migrate(t.Context()))
				require.NoError(t, s.Check(t.Context()), "it is usable without a restart")
				sqlshop.Claim(t, s, "k", "t")
			}
		})
	}
}

// strange is a driver of another database.
type strange struct{ driver.Conn }

func (s strange) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s strange) Driver() driver.Driver                        { return nil }
func (strange) Close() error                                   { return nil }

// The file of the claims is as private as the database.
func TestModeOfTheClaims(t *testing.T) {
	t.Parallel()
	path := file(t)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chmod(path, 0o640))
	s := open(t, path)
	sqlshop.Claim(t, s, "k", "t")
	all := must.Get(filepath.Glob(path + "*"))(t)
	require.GreaterOrEqual(t, len(all), 4, "the files, and their logs: %v", all)
	for _, name := range all {
		require.Equal(t, os.FileMode(0o640), must.Get(os.Stat(name))(t).Mode().Perm(), name)
	}
}

// Names with characters that mean something in a URI or in SQL.
func TestNames(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), `shop & 50% "off"? #1.db`)
	one := open(t, path)
	sqlshop.UseTable(t, one, "one")
	for _, name := range []string{`it's "mine"`, "select", `x"; DROP TABLE latch_entries; --`} {
		sqlshop.UseTable(t, open(t, path, sqlitestore.WithTable(name)), name)
	}
	must.Get(os.Stat(path + "-latch"))(t)
	for _, name := range []string{"", "a\x00", "\xff", "SQLite_x"} {
		require.Panics(t, func() { sqlitestore.WithTable(name) })
	}
	require.Panics(t, func() { sqlitestore.New(nil) })
	require.Panics(t, func() { sqlitestore.New(one.DB(), nil) })
	require.Nil(t, sqlitestore.New(one.DB()).DB())
}

// Another program that has locked a file delays calls, which give up with their context and then
// have no effect.
func TestFilesThatAnotherProgramHasLocked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		suffix string
		lock   string
	}{
		"the claims":               {"-latch", "BEGIN IMMEDIATE"},
		"the database, for itself": {"", "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			path := file(t)
			open(t, path).Close()
			there := connect(t, path+tt.suffix)
			run(t, there, tt.lock)
			db, err := sql.Open("sqlite", path)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			s := sqlitestore.New(db)
			t.Cleanup(s.Close)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err = s.Claim(ctx, "k", lock.Claim{Token: "late", Attempt: 1, Lease: time.Minute})
			require.ErrorIs(t, err, lock.ErrNotApplied)
			require.NotErrorIs(t, err, lock.ErrDenied)
			require.Contains(t, []string{"busy", "silent"}, lock.Class(err), "%v", err)
			require.Less(t, time.Since(began), 10*time.Second)
			_ = there.Raw(func(any) error { return driver.ErrBadConn }) // closes the connection, and so ends the lock
			require.Eventually(t, func() bool {
				e, err := s.Claim(t.Context(), "k", lock.Claim{Token: "next", Attempt: 1, Lease: time.Minute})
				return err == nil && e.Token == "next"
			}, 10*time.Second, 10*time.Millisecond)
		})
	}
}

// A database without room loses no receipt: nothing of its order stays, and the next try runs.
func TestReceiptWithoutRoom(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	s.store.DB().SetMaxOpenConns(1)
	l := sqlshop.Locker(t, s.store)
	s.exec(t, "PRAGMA max_page_count = 12")
	big := func(ctx context.Context) ([]byte, error) { return make([]byte, 1<<20), exec(ctx, insert, "big") }
	_, _, err := l.Once(t.Context(), "k", nil, big)
	require.ErrorIs(t, err, lock.ErrNotApplied)
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.Equal(t, "full", lock.Class(err), "%v", err)
	require.Empty(t, s.Orders(t))
	s.exec(t, "PRAGMA max_page_count = 10000")
	require.Len(t, must.Run(t)(l.Once(t.Context(), "k", nil, big)), 1<<20)
	require.Equal(t, []string{"big"}, s.Orders(t))
}
