package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

type txKey struct{}

// Tx returns the transaction of the work whose context is ctx. Its changes are committed
// with the receipt, or not at all. ok is false outside of a run of [lock.Locker.Once] with
// [lock.WithTransaction].
//
// BEGIN IMMEDIATE comes with its first statement: from then on until the work ends, no other work
// writes to the database. What takes long is better done before. Its Commit and Rollback return
// an error, and so do such statements: to have it rolled back, return an error, or an answer that
// is not kept. A deferred Rollback does no harm. Savepoints work.
func Tx(ctx context.Context) (tx *sql.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

var errNotYours = errors.New("sqlitestore: the guard commits this transaction with the receipt: return an error, or an answer that is not kept, to have it rolled back")

// out makes the work's *sql.Tx, whose one connection is its session.
var out = rowstore.Lender{Refusal: errNotYours}

// lent is the connection of a session for the work.
type lent struct{ w *session }

func (lent) Close() error                                                 { return nil }
func (lent) Begin() (driver.Tx, error)                                    { return out.Tx(), nil }
func (lent) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return out.Tx(), nil }

// enter makes the transaction ready for a statement. The context that it returns also ends when
// the transaction is taken from the work.
func (c lent) enter(ctx context.Context) (context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.w.cut, cancel)
	leave := func() { stop(); cancel() }
	if err := c.w.ready(ctx); err != nil {
		leave()
		return nil, nil, err
	}
	return ctx, leave, nil
}

// sees notes the error of a statement, and returns it.
func (c lent) sees(err error) error {
	if err != nil && !errors.Is(err, io.EOF) {
		c.w.doubt = err
	}
	return err
}

// ExecContext is part of [driver.ExecerContext].
func (c lent) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if ends(query) {
		return nil, errNotYours
	}
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	result, err := c.w.conn.ExecContext(ctx, query, args)
	return result, c.sees(err)
}

// QueryContext is part of [driver.QueryerContext].
func (c lent) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if ends(query) {
		return nil, errNotYours
	}
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := c.w.conn.QueryContext(ctx, query, args)
	if c.sees(err) != nil {
		leave()
		return nil, err
	}
	return lentRows{rows.(typedRows), c, leave}, nil //nolint:errcheck,forcetypeassert // it is the driver's
}

// Prepare is part of [driver.Conn]. The statement is prepared whenever it is executed.
func (c lent) Prepare(query string) (driver.Stmt, error) {
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

type typedRows interface {
	driver.Rows
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

// lentRows are the rows of a query.
type lentRows struct {
	typedRows

	c     lent
	leave func()
}

// Next is part of [driver.Rows].
func (r lentRows) Next(dest []driver.Value) error { return r.c.sees(r.typedRows.Next(dest)) }

// Close is part of [driver.Rows].
func (r lentRows) Close() error {
	defer r.leave()
	return r.c.sees(r.typedRows.Close())
}
