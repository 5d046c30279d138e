package sqlitestore

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/httplatch/httplatch/lock"
)

// Check reports a file that cannot be opened or written to, is not in WAL mode, or has a second name
// (a hard link), and a table that is missing or lacks columns. Each error names the cure. An error
// that only an operator can fix matches lock.ErrDenied.
func (s *Store) Check(ctx context.Context) error {
	return s.call(ctx, false, func(ctx context.Context, f *files, _ int64) error {
		database, err := os.Stat(strings.TrimSuffix(f.path, suffix))
		if err != nil {
			return err
		}
		if links(database) > 1 {
			return errLinked
		}
		// Keys are not empty, so nothing is removed. BEGIN IMMEDIATE alone is no error over a
		// file that can only be read.
		if err := f.remove(ctx, []byte{}); err != nil {
			return err
		}
		_, err = f.receipts.ExecContext(ctx, s.statements.drop, []byte{})
		if busy(err) { // work writes to it
			return nil
		}
		return err
	})
}

// errLinked is about hard links alone: SQLite follows symbolic links.
var errLinked = fmt.Errorf("%w: the database has a second name (a hard link), and a process that opens it by the other name has a file of claims of its own: "+
	"remove one of the names, or make it a symbolic link", lock.ErrDenied)

// Describe is part of [lock.Describer].
func (s *Store) Describe() lock.Description { return lock.Description{Check: s.Check} }
