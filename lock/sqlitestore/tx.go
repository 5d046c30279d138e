package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

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

var errNotYours = errors.New("sqlitestore: the guard commits this transaction with the receipt: return an error, or an answer that is not kept, to have it rolled back")

// out makes the work's *sql.Tx, whose one connection is its session.
var out = rowstore.Lender{Refusal: errNotYours}

// lent is the connection of a session for the work.
type lent struct{ rowstore.Lent }

// lent returns the session's connection for the work.
func (w *session) lent() lent {
	return lent{rowstore.Lent{Lender: out, Session: w, Conn: func() rowstore.RawConn { return w.conn }, Cut: w.cut}}
}

// Ready is part of [rowstore.Session].
func (w *session) Ready(ctx context.Context, text string) error {
	if ends(text) {
		return errNotYours
	}
	return w.ready(ctx)
}

// NoteError is part of [rowstore.Session].
func (w *session) NoteError(err error) { w.stmtErr = err }

// PrepareContext is part of [driver.ConnPrepareContext]. The statement is prepared whenever it
// is executed.
func (c lent) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	if ends(query) {
		return nil, errNotYours
	}
	return lentStmt{c, query}, nil
}

type lentStmt struct {
	c     lent
	query string
}

func (lentStmt) Close() error                               { return nil }
func (lentStmt) NumInput() int                              { return -1 }
func (lentStmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }
func (lentStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }

// ExecContext is part of [driver.StmtExecContext].
func (s lentStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.ExecContext(ctx, s.query, args)
}

// QueryContext is part of [driver.StmtQueryContext].
func (s lentStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.QueryContext(ctx, s.query, args)
}
