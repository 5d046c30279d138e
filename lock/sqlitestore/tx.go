package sqlitestore

import (
	"context"
	"database/sql"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

type txKey struct{}

// Tx returns the transaction of the work whose context is ctx. Its changes are committed
// with the receipt, or not at all. ok is false outside of a run of [lock.Locker.Once] with
// [lock.WithTransaction].
//
// The first statement of the work sends BEGIN IMMEDIATE. From then until the work ends, no other
// work writes to the database, so do slow work before the first statement. Commit and Rollback
// of tx return an error and do nothing, and so do COMMIT and ROLLBACK as statements. To roll
// back, return an error, or send an answer that is not kept. A deferred Rollback does no harm.
// Savepoints work.
func Tx(ctx context.Context) (tx *sql.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

var errNotYours = rowstore.NotYours("sqlitestore")

// out makes the work's *sql.Tx, whose one connection is its session.
var out = rowstore.Lender{Refusal: errNotYours}

// Ready is part of [rowstore.Session].
func (w *session) Ready(ctx context.Context, text string) error {
	if ends(text) {
		return errNotYours
	}
	return w.ready(ctx)
}

// NoteError is part of [rowstore.Session].
func (w *session) NoteError(err error) { w.stmtErr = err }
