package rowstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
)

// Session is the use of a connection for one transaction of work.
type Session interface {
	// Ready makes the transaction ready for a text of statements. If they must not be executed, it
	// returns an error.
	Ready(ctx context.Context, text string) error

	// NoteError notes the error of a statement, after which the database may have ended the
	// transaction.
	NoteError(err error)
}

// RawConn is a connection of a driver.
type RawConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
}

// Lent is the connection of a session for the work. The session may connect anew until Ready has returned.
type Lent struct {
	lender  Lender
	session Session
	work    *Work
}

// Close does nothing: the session ends the use of the connection.
func (Lent) Close() error { return nil }

// Begin is part of [driver.Conn].
func (c Lent) Begin() (driver.Tx, error) { return c.lender, nil }

// BeginTx does nothing: the session begins the transaction.
func (c Lent) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return c.lender, nil
}

// enter makes the transaction ready for statements. The context that it returns also ends when the
// transaction is taken from the work.
func (c Lent) enter(ctx context.Context, text string) (context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.work.cut, cancel)
	leave := func() { stop(); cancel() }
	if err := c.session.Ready(ctx, text); err != nil {
		leave()
		return nil, nil, err
	}
	return ctx, leave, nil
}

// sees notes the error of a statement, and returns it.
func (c Lent) sees(err error) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, driver.ErrSkip) {
		c.session.NoteError(err)
	}
	return err
}

// ExecContext is part of [driver.ExecerContext].
func (c Lent) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(ctx, text, func(ctx context.Context) (driver.Result, error) { return c.work.Conn.ExecContext(ctx, text, args) })
}

// QueryContext is part of [driver.QueryerContext].
func (c Lent) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	return c.query(ctx, text, func(ctx context.Context) (driver.Rows, error) { return c.work.Conn.QueryContext(ctx, text, args) })
}

func (c Lent) exec(ctx context.Context, text string, run func(context.Context) (driver.Result, error)) (driver.Result, error) {
	ctx, leave, err := c.enter(ctx, text)
	if err != nil {
		return nil, err
	}
	defer leave()
	result, err := run(ctx)
	return result, c.sees(err)
}

func (c Lent) query(ctx context.Context, text string, run func(context.Context) (driver.Rows, error)) (driver.Rows, error) {
	ctx, leave, err := c.enter(ctx, text)
	if err != nil {
		return nil, err
	}
	rows, err := run(ctx)
	if c.sees(err) != nil {
		leave()
		return nil, err
	}
	return lentRows{rows.(typedRows), c, leave}, nil //nolint:errcheck,forcetypeassert // each driver's are
}

// Prepare is part of [driver.Conn].
func (c Lent) Prepare(text string) (driver.Stmt, error) { return c.PrepareContext(c.work.cut, text) }

// CheckNamedValue is part of [driver.NamedValueChecker], which not every driver has.
func (c Lent) CheckNamedValue(v *driver.NamedValue) error { return checkValue(c.work.Conn, v) }

func checkValue(by any, v *driver.NamedValue) error {
	if checker, ok := by.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// PrepareContext is part of [driver.ConnPrepareContext], for a driver that prepares statements
// at the server.
func (c Lent) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	ctx, leave, err := c.enter(ctx, text)
	if err != nil {
		return nil, err
	}
	defer leave()
	stmt, err := c.work.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, text) //nolint:errcheck,forcetypeassert // it is one
	if c.sees(err) != nil {
		return nil, err
	}
	return lentStmt{stmt.(preparedStmt), c, text}, nil //nolint:errcheck,forcetypeassert // such a driver's are
}

type preparedStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// lentStmt is a prepared statement of the work.
type lentStmt struct {
	preparedStmt

	c    Lent
	text string
}

// CheckNamedValue is part of [driver.NamedValueChecker], which not every driver has.
func (s lentStmt) CheckNamedValue(v *driver.NamedValue) error { return checkValue(s.preparedStmt, v) }

// ExecContext is part of [driver.StmtExecContext].
func (s lentStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.exec(ctx, s.text, func(ctx context.Context) (driver.Result, error) { return s.preparedStmt.ExecContext(ctx, args) })
}

// QueryContext is part of [driver.StmtQueryContext].
func (s lentStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.query(ctx, s.text, func(ctx context.Context) (driver.Rows, error) { return s.preparedStmt.QueryContext(ctx, args) })
}

type typedRows interface {
	driver.Rows
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

// lentRows are the rows of a query.
type lentRows struct {
	typedRows

	c     Lent
	leave func()
}

// Next is part of [driver.Rows].
func (r lentRows) Next(into []driver.Value) error { return r.c.sees(r.typedRows.Next(into)) }

// HasNextResultSet is part of [driver.RowsNextResultSet], which not every driver has.
func (r lentRows) HasNextResultSet() bool {
	several, ok := r.typedRows.(driver.RowsNextResultSet)
	return ok && several.HasNextResultSet()
}

// NextResultSet is part of [driver.RowsNextResultSet].
func (r lentRows) NextResultSet() error {
	if several, ok := r.typedRows.(driver.RowsNextResultSet); ok {
		return r.c.sees(several.NextResultSet())
	}
	return io.EOF
}

// ColumnTypeLength is part of [driver.RowsColumnTypeLength], which not every driver has.
func (r lentRows) ColumnTypeLength(column int) (length int64, ok bool) {
	if sized, is := r.typedRows.(driver.RowsColumnTypeLength); is {
		return sized.ColumnTypeLength(column)
	}
	return 0, false
}

// Close is part of [driver.Rows].
func (r lentRows) Close() error {
	defer r.leave()
	return r.c.sees(r.typedRows.Close())
}
