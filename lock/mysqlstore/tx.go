package mysqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

type txKey struct{}

// Tx returns the transaction of the work whose context is ctx. Its changes are committed with the
// receipt, or not at all. ok is false outside of a run of [lock.Locker.Once] with
// [lock.WithTransaction].
//
// Commit and Rollback of tx return an error, and so do statements that would end the transaction,
// such as ALTER TABLE. To roll back, return an error, or send an answer that is not kept. A
// deferred Rollback does no harm. Savepoints work. The transaction begins with its first
// statement, with the isolation level of the database that the store was given.
func Tx(ctx context.Context) (tx *sql.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

var errWouldEnd = errors.New("mysqlstore: the statement would end the work's transaction, or change its clock: run it outside of the work; " +
	"to have all rolled back, return an error, or an answer that is not kept")

// out makes the work's *sql.Tx, whose one connection is its session.
var out = rowstore.Lender{Refusal: rowstore.NotYours("mysqlstore")}

// Ready is part of [rowstore.Session].
func (w *session) Ready(ctx context.Context, text string) error { return w.ready(ctx, kindOf(text)) }

// NoteError is part of [rowstore.Session].
func (w *session) NoteError(err error) { w.stmtErr = w.see(err) }
