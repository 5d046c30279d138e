package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

type txKey struct{}

// Tx returns the transaction of the work whose context is ctx. Its changes are committed with the
// receipt, or not at all. ok is false outside of a run of [lock.Locker.Once] with
// [lock.WithTransaction].
//
// Its Commit and Rollback return an error, and so do statements that would end the transaction, such
// as ALTER TABLE: to have it rolled back, return an error, or an answer that is not kept. A deferred
// Rollback does no harm. Savepoints work. It begins with its first statement, with the isolation of the
// database that the store was given.
func Tx(ctx context.Context) (tx *sql.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

var errNotYours = errors.New("mysqlstore: the guard commits this transaction with the receipt: return an error, or an answer that is not kept, to have it rolled back")

var errWouldEnd = errors.New("mysqlstore: the statement would end the work's transaction, or change its clock: run it outside of the work; " +
	"to have all rolled back, return an error, or an answer that is not kept")

// out makes the work's *sql.Tx, whose one connection is its session.
var out = rowstore.Lender{Refusal: errNotYours}

// lent is the connection of a session for the work.
type lent struct{ w *session }

var _ interface {
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.NamedValueChecker
} = lent{}

// Close does nothing: the session ends the use of the connection.
func (lent) Close() error { return nil }

// Begin is part of [driver.Conn].
func (lent) Begin() (driver.Tx, error) { return out.Tx(), nil }

// BeginTx does nothing: the session begins the transaction.
func (lent) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return out.Tx(), nil }

// CheckNamedValue is the driver's.
func (c lent) CheckNamedValue(v *driver.NamedValue) error { return c.w.conn.CheckNamedValue(v) }

// enter makes the transaction ready for a statement. The context that it returns also ends when the
// transaction is taken from the work.
func (c lent) enter(ctx context.Context, how kind) (context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.w.cut, cancel)
	leave := func() { stop(); cancel() }
	if err := c.w.ready(ctx, how); err != nil {
		leave()
		return nil, nil, err
	}
	return ctx, leave, nil
}

// sees notes the error of a statement, and returns it.
func (c lent) sees(err error) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, driver.ErrSkip) {
		c.w.doubt = err
	}
	return err
}

// ExecContext is part of [driver.ExecerContext].
func (c lent) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(ctx, query, func(ctx context.Context) (driver.Result, error) { return c.w.conn.ExecContext(ctx, query, args) })
}

// QueryContext is part of [driver.QueryerContext].
func (c lent) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.query(ctx, query, func(ctx context.Context) (driver.Rows, error) { return c.w.conn.QueryContext(ctx, query, args) })
}

func (c lent) exec(ctx context.Context, query string, run func(context.Context) (driver.Result, error)) (driver.Result, error) {
	ctx, leave, err := c.enter(ctx, kindOf(query))
	if err != nil {
		return nil, err
	}
	defer leave()
	result, err := run(ctx)
	return result, c.sees(err)
}

func (c lent) query(ctx context.Context, query string, run func(context.Context) (driver.Rows, error)) (driver.Rows, error) {
	ctx, leave, err := c.enter(ctx, kindOf(query))
	if err != nil {
		return nil, err
	}
	rows, err := run(ctx)
	if c.sees(err) != nil {
		leave()
		return nil, err
	}
	return lentRows{rows.(driverRows), c, leave}, nil //nolint:errcheck,forcetypeassert // it is the driver's
}

// Prepare is part of [driver.Conn].
func (c lent) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(c.w.cut, query)
}

// PrepareContext is part of [driver.ConnPrepareContext].
func (c lent) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	ctx, leave, err := c.enter(ctx, kindOf(query))
	if err != nil {
		return nil, err
	}
	defer leave()
	stmt, err := c.w.conn.PrepareContext(ctx, query)
	if c.sees(err) != nil {
		return nil, err
	}
	return lentStmt{stmt.(driverStmt), c, query}, nil //nolint:errcheck,forcetypeassert // it is the driver's
}

type driverStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
	driver.NamedValueChecker
}

// lentStmt is a prepared statement of the work.
type lentStmt struct {
	driverStmt

	c     lent
	query string
}

// ExecContext is part of [driver.StmtExecContext].
func (s lentStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.exec(ctx, s.query, func(ctx context.Context) (driver.Result, error) { return s.driverStmt.ExecContext(ctx, args) })
}

// QueryContext is part of [driver.StmtQueryContext].
func (s lentStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.query(ctx, s.query, func(ctx context.Context) (driver.Rows, error) { return s.driverStmt.QueryContext(ctx, args) })
}

type driverRows interface {
	driver.Rows
	driver.RowsNextResultSet
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

// lentRows are the rows of a query.
type lentRows struct {
	driverRows

	c     lent
	leave func()
}

// Next is part of [driver.Rows].
func (r lentRows) Next(into []driver.Value) error { return r.c.sees(r.driverRows.Next(into)) }

// NextResultSet is part of [driver.RowsNextResultSet].
func (r lentRows) NextResultSet() error { return r.c.sees(r.driverRows.NextResultSet()) }

// Close is part of [driver.Rows].
func (r lentRows) Close() error {
	defer r.leave()
	return r.c.sees(r.driverRows.Close())
}
