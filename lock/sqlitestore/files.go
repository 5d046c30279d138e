package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// files are the store's own connections of one goroutine: one to the file of claims, and one to the
// database, which reads the receipts. Replays have the second alone. No statement has a context that can
// end: an interrupt would roll back the calls of other callers.
type files struct {
	claims, receipts               *sql.Conn
	begin, commit                  *sql.Stmt // of the file of claims, like the statements below, except settled
	get, settled, put, drop, fence *sql.Stmt
	durable                        bool                   // commits of claims wait for the disk
	path                           string                 // of the file of claims
	opened                         map[string]os.FileInfo // of the file of claims, its log, and its index, by their paths
	all                            []io.Closer            // in the order in which they were opened
}

// suffix is the end of the name of the file of claims.
const suffix = "-latch"

// openFiles opens the files, or the connection of replays.
func (s *Store) openFiles(ctx context.Context, replays bool) (f *files, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	path, err := s.path(ctx)
	if err != nil {
		return nil, err
	}
	f = new(files)
	if err = f.openReceipts(ctx, path, &s.statements); err == nil && !replays {
		if err = f.openClaims(ctx, path, &s.statements); err != nil {
			err = fmt.Errorf("%s: %w", path+suffix, err)
		}
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *files) openReceipts(ctx context.Context, path string, s *statements) (err error) {
	if f.receipts, err = f.connect(ctx, path, "busy_timeout(20)"); err != nil {
		return err
	}
	var mode string
	if err = f.receipts.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err == nil && mode != "wal" {
		err = errNoWAL
	}
	return f.prepare(ctx, err, &f.settled, f.receipts, s.get)
}

func (f *files) openClaims(ctx context.Context, path string, s *statements) error {
	database, err := os.Stat(path)
	if err != nil {
		return err
	}
	_, before := os.Stat(path + suffix)
	if f.claims, err = f.connect(ctx, path+suffix, "busy_timeout(1000)", "synchronous(NORMAL)"); err != nil {
		return err
	}
	if errors.Is(before, os.ErrNotExist) { // SQLite has made it, and nothing is in it yet
		err = errors.Join(os.Chmod(path+suffix, database.Mode().Perm()), giveTo(path+suffix, database))
	}
	f.path, f.opened = path+suffix, make(map[string]os.FileInfo)
	err = f.note(err, "")
	if err == nil {
		err = migrate(ctx, f.claims, s.present, s.schema+s.fences)
	}
	err = f.note(err, "-wal", "-shm")
	for stmt, text := range map[**sql.Stmt]string{&f.begin: "BEGIN IMMEDIATE", &f.commit: "COMMIT", &f.get: s.get, &f.put: s.put, &f.drop: s.drop, &f.fence: s.fence} {
		err = f.prepare(ctx, err, stmt, f.claims, text)
	}
	if err != nil {
		return err
	}
	return f.exec(ctx, "PRAGMA busy_timeout = 0") // begin waits itself
}

// prepare prepares a statement, unless there was an error before, which it returns.
func (f *files) prepare(ctx context.Context, before error, stmt **sql.Stmt, conn *sql.Conn, text string) (err error) {
	if before != nil {
		return before
	}
	if *stmt, err = conn.PrepareContext(ctx, text); err == nil {
		f.all = append(f.all, *stmt)
	}
	return err
}

// connect returns the one connection to a file.
func (f *files) connect(ctx context.Context, path string, pragmas ...string) (*sql.Conn, error) {
	db, err := openFile(path, pragmas...)
	if err != nil {
		return nil, err
	}
	f.all = append(f.all, db)
	conn, err := db.Conn(ctx)
	if err == nil {
		f.all = append(f.all, conn)
	}
	return conn, err
}

// close closes statements and connections. f may be nil.
func (f *files) close() {
	if f == nil {
		return
	}
	for _, c := range slices.Backward(f.all) { // the driver keeps a connection that has statements
		_ = c.Close()
	}
}

// path returns the path of the database file. It asks once: work may have all connections later.
func (s *Store) path(ctx context.Context) (path string, err error) {
	if known := s.file.Load(); known != nil {
		return *known, nil
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return "", failure.Of(err)
	}
	defer conn.Close() //nolint:errcheck // it goes back to its pool
	if err = conn.Raw(known); err == nil {
		// The first row is the one of "main". The pragma reads no file, which another process may have locked.
		err = conn.QueryRowContext(ctx, "PRAGMA database_list").Scan(new(any), new(any), &path)
	}
	switch {
	case err != nil:
		return "", failure.Of(err)
	case path == "":
		return "", errMemory
	}
	s.file.Store(&path)
	return path, nil
}

// note notes the files of claims that were opened, unless there was an error before, which it returns.
func (f *files) note(err error, ends ...string) error {
	for _, end := range ends {
		if err == nil {
			f.opened[f.path+end], err = os.Stat(f.path + end)
		}
	}
	return err
}

// replaced reports whether one of the files of claims was removed, or another one is in its place, such as
// one from a backup. Processes that start now use the other one.
func (f *files) replaced() bool {
	for path, opened := range f.opened {
		if now, err := os.Stat(path); err != nil || !os.SameFile(now, opened) {
			return true
		}
	}
	return false
}

// exec runs a statement on the file of claims.
func (f *files) exec(ctx context.Context, statement string, args ...any) error {
	_, err := f.claims.ExecContext(ctx, statement, args...)
	return err
}

// lock begins a transaction on the file of claims. If durable is set, the commit waits for the
// disk.
func (f *files) lock(ctx context.Context, durable bool) (err error) {
	if durable != f.durable {
		mode := map[bool]string{true: "FULL", false: "NORMAL"}[durable]
		if err = f.exec(ctx, "PRAGMA synchronous = "+mode); err != nil {
			return err
		}
		f.durable = durable
	}
	_, err = f.begin.ExecContext(ctx)
	return err
}
