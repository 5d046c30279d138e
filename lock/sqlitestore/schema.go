package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Schema makes the table of a store, unless it exists, for migration tools. With [WithTable],
// replace the name. The database also has to be in WAL mode: PRAGMA journal_mode = WAL, once.
// [Store.Migrate] does both. Times are microseconds since 1970.
//
// The file of claims has the same table, which the store makes itself.
const Schema = `
CREATE TABLE IF NOT EXISTS latch_entries (
	key         BLOB    NOT NULL PRIMARY KEY,
	token       BLOB    NOT NULL,
	attempt     INTEGER NOT NULL,
	fingerprint BLOB,
	owner       BLOB,
	fence       INTEGER NOT NULL, -- 0: none
	settled     INTEGER NOT NULL, -- 1: there is a receipt
	receipt     BLOB,
	ends_at     INTEGER NOT NULL, -- when the lease or the receipt ends
	over_at     INTEGER NOT NULL  -- when the entry ends, after its linger
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS latch_entries_over_at ON latch_entries (over_at);
`

// fences makes the table of the last fence, in the file of claims alone.
const fences = `CREATE TABLE IF NOT EXISTS latch_entries_fence (fence INTEGER NOT NULL);
INSERT INTO latch_entries_fence SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM latch_entries_fence);
`

// statements has the SQL of a store.
type statements struct {
	present, schema, fences, get, put, leave, settle, drop, page, sweep, fence string
}

const (
	columns = `key, ` + values
	values  = `token, attempt, fingerprint, owner, fence, settled, receipt, ends_at, over_at`
)

func newStatements(table string) statements {
	quoted := func(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
	names := strings.NewReplacer(
		rowstore.DefaultTable+"_over_at", quoted(table+"_over_at"),
		rowstore.DefaultTable+"_fence", quoted(table+"_fence"),
		rowstore.DefaultTable, quoted(table),
	)
	return statements{
		present: names.Replace(`SELECT ` + columns + ` FROM latch_entries LIMIT 0`),
		schema:  names.Replace(Schema),
		fences:  names.Replace(fences),
		get:     names.Replace(`SELECT ` + columns + ` FROM latch_entries WHERE key = ?1`),
		put:     names.Replace(`INSERT OR REPLACE INTO latch_entries (` + columns + `) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)`),
		leave:   names.Replace(`INSERT INTO latch_entries (` + columns + `) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)`),
		// A receipt replaces no living row of another token: with the file of claims removed, two
		// processes can hold one claim each.
		settle: names.Replace(`INSERT INTO latch_entries (` + columns + `) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
			ON CONFLICT (key) DO UPDATE SET (` + values + `) = (excluded.` + strings.ReplaceAll(values, ", ", ", excluded.") + `)
			WHERE over_at <= ?11 OR token = excluded.token`),
		drop: names.Replace(`DELETE FROM latch_entries WHERE key = ?1`),
		page: names.Replace(`SELECT key, token, attempt, fingerprint, owner, fence, settled, iif(?3, receipt, NULL), ends_at, over_at
			FROM latch_entries WHERE key > ?1 ORDER BY key LIMIT ?2`),
		sweep: names.Replace(`DELETE FROM latch_entries WHERE key IN (SELECT key FROM latch_entries WHERE over_at < ?1 ORDER BY over_at LIMIT ?2)`),
		fence: names.Replace(`UPDATE latch_entries_fence SET fence = max(fence + 1, ?1) RETURNING fence`),
	}
}

// Migrate makes the store's table, if it is missing, and sets WAL mode. Many processes may call
// it at once, and at each start: if nothing is missing, it only reads.
func (s *Store) Migrate(ctx context.Context) error {
	path, err := s.path(ctx)
	if err != nil {
		return err
	}
	f := new(files)
	defer f.close()
	conn, err := f.connect(ctx, path, "busy_timeout(5000)")
	if err == nil {
		err = migrate(ctx, conn, s.statements.present, s.statements.schema)
	}
	if err != nil {
		return fmt.Errorf("sqlitestore: migrating: %w", failure.Of(err))
	}
	return nil
}

// migrate runs schema if the table is missing, and sets WAL mode if it is off. SQLite can refuse
// two connections that set WAL mode at the same time, without waiting for the busy timeout,
// because each would wait for the other.
func migrate(ctx context.Context, conn *sql.Conn, present, schema string) error {
	for began := time.Now(); ; {
		err := migrateOnce(ctx, conn, present, schema)
		if !busy(err) || time.Since(began) > 2*time.Second || !takePause(ctx) {
			return err
		}
	}
}

func migrateOnce(ctx context.Context, conn *sql.Conn, present, schema string) error {
	var mode string
	err := conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode)
	if err == nil && mode != "wal" {
		if err = conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err == nil && mode != "wal" {
			err = errNoWAL
		}
	}
	if err != nil {
		return err
	}
	if _, err = conn.ExecContext(ctx, present); err == nil || !noTable(err) {
		return err
	}
	_, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE;\n"+schema+"COMMIT")
	if err != nil {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	}
	return err
}

// Check reports a file that cannot be opened or written to, is not in WAL mode, or has a second name
// (a hard link), and a table that is missing or lacks columns. Each error names the cure. An error
// that only an operator can fix matches lock.ErrDenied.
func (s *Store) Check(ctx context.Context) error {
	_, err := answered(ctx, s, false, func(ctx context.Context, f *files, _ int64) (ok bool, err error) {
		database, err := os.Stat(strings.TrimSuffix(f.path, suffix))
		if err == nil && links(database) > 1 {
			err = errLinked
		}
		// Keys are not empty, so nothing is removed. BEGIN IMMEDIATE alone is no error over a
		// file that can only be read.
		if err == nil {
			err = f.remove(ctx, []byte{})
		}
		if err == nil {
			if _, err = f.receipts.ExecContext(ctx, s.statements.drop, []byte{}); busy(err) { // work writes to it
				err = nil
			}
		}
		return err == nil, err
	})
	return err
}

// errLinked is about hard links alone: SQLite follows symbolic links.
var errLinked = fmt.Errorf("%w: the database has a second name (a hard link), and a process that opens it by the other name has a file of claims of its own: "+
	"remove one of the names, or make it a symbolic link", lock.ErrDenied)

// Describe is part of [lock.Describer].
func (s *Store) Describe() lock.Description { return lock.Description{Check: s.Check} }
