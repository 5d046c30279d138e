package sqlitestore

import "context"

// Check reports a file that cannot be opened or written to, or is not in WAL mode, and a table that
// is missing or lacks columns, each with a cure. An error that an operator has to repair matches
// lock.ErrDenied.
func (s *Store) Check(ctx context.Context) error {
	return s.call(ctx, false, func(ctx context.Context, f *files, _ int64) error {
		_, err := f.receipts.ExecContext(ctx, "BEGIN IMMEDIATE")
		if busy(err) {
			return nil // work writes to it
		} else if err == nil {
			_, err = f.receipts.ExecContext(ctx, "ROLLBACK")
		}
		return err
	})
}
