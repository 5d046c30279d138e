package sqlitestore

import (
	"context"
	"errors"

	"github.com/httplatch/httplatch/lock"
)

// Ends is ends.
func Ends(text string) bool { return ends(text) }

// ForgetCommit makes a transaction that has ended forget its COMMIT, as if the disk had failed in it.
func ForgetCommit(tx lock.Transaction) {
	t := tx.(*workTransaction) //nolint:forcetypeassert // the test has it from Begin
	t.committed, t.err = false, hangs(context.Background())
}

// Waits reports whether the commit of a call waits for the disk. durable is set if the call needs
// that.
func (s *Store) Waits(ctx context.Context, durable bool) (waits bool, err error) {
	var claims, receipts int
	return answered(ctx, s, durable, func(ctx context.Context, f *files, _ int64) (bool, error) {
		err := errors.Join(
			f.claims.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&claims),
			f.receipts.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&receipts),
		)
		return claims == full && receipts == full, err
	})
}

// Waited reports whether the commit of the last call has waited for the disk. The caller makes no
// call at the same time.
func (s *Store) Waited(ctx context.Context) (waited bool, err error) {
	s.queue.Wait()
	var mode int
	err = s.files.claims.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&mode)
	return mode == full, err
}

// full is the value of PRAGMA synchronous with which a commit waits for the disk.
const full = 2
