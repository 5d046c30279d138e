package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/httplatch/httplatch/lock"
)

// WithTx returns a context with tx for Tx, for broken stores of tests.
func WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// Ends is ends.
func Ends(text string) bool { return ends(text) }

// ForgetCommit makes a transaction that has ended forget its COMMIT, as if the disk had failed in it.
func ForgetCommit(tx lock.Transaction) {
	t := tx.(*settling) //nolint:forcetypeassert // the test has it from Begin
	t.committed, t.err = false, hangs(context.Background())
}
