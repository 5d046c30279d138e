package sqlitestore

import "context"

// Check reports a file that cannot be opened or written to, or is not in WAL mode, and a table that
// is missing or lacks columns. Each error names the cure. An error that only an operator can fix
// matches lock.ErrDenied.
func (s *Store) Check(ctx context.Context) error {
	return s.call(ctx, false, func(ctx context.Context, f *files, _ int64) error {
		// Keys are not empty, so nothing is removed. BEGIN IMMEDIATE alone is no error over a
		// file that can only be read.
		if err := f.remove(ctx, []byte{}); err != nil {
			return err
		}
		_, err := f.receipts.ExecContext(ctx, s.statements.drop, []byte{})
		if busy(err) { // work writes to it
			return nil
		}
		return err
	})
}
