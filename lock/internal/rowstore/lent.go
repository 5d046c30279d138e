package rowstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Lender makes the *sql.Tx of the work, for a store by the name of its package: it makes the connections of
// a *sql.DB, and is the driver's view of each transaction. Its connections are lent by their sessions, and its
// transactions neither begin nor end: the sql.Tx cannot be used after Commit or Rollback.
type Lender string

// Refusal returns the error of work that ends its transaction.
func (l Lender) Refusal() error {
	return errors.New(string(l) + ": the guard commits this transaction with the receipt: return an error, or an answer that is not kept, to have it rolled back")
}

type lentKey struct{}

// DB returns the database of the *sql.Tx.
func (l Lender) DB() *sql.DB {
	out := sql.OpenDB(l)
	out.SetMaxIdleConns(-1) // no connection outlives its transaction
	return out
}

// Lend returns a *sql.Tx over conn, whose BeginTx returns the Lender's Tx. It ends with ctx.
func Lend(ctx context.Context, out *sql.DB, conn driver.Conn) (*sql.Tx, error) {
	return out.BeginTx(context.WithValue(ctx, lentKey{}, conn), nil)
}

// Commit is part of [driver.Tx].
func (l Lender) Commit() error { return l.Refusal() }

// Rollback is part of [driver.Tx].
func (l Lender) Rollback() error { return l.Refusal() }

// Connect is part of [driver.Connector].
func (l Lender) Connect(ctx context.Context) (driver.Conn, error) {
	conn, ok := ctx.Value(lentKey{}).(driver.Conn)
	if !ok {
		return nil, l.Refusal()
	}
	return conn, nil
}

// Driver is part of [driver.Connector]. The *sql.DB calls none of it.
func (Lender) Driver() driver.Driver { return nil }

// RawConn is a connection of a driver.
type RawConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
}

// Work is a connection of a *sql.DB that work has for one transaction.
type Work struct {
	User    *sql.Conn // of the pool
	Conn    RawConn   // the same connection of its driver
	Tx      *sql.Tx   // of the work
	StmtErr error     // of a statement, after which the database may have ended the transaction

	Stop context.CancelFunc // ends the calls of the work that are in progress
	cut  context.Context    //nolint:containedctx // ended by Stop
}

// Connect takes a connection of db, which known returns an error for if it is another driver's.
func (w *Work) Connect(ctx context.Context, db *sql.DB, known func(conn any) error) (err error) {
	if w.User, err = db.Conn(ctx); err != nil {
		return err
	}
	err = w.User.Raw(func(conn any) error {
		w.Conn, _ = conn.(RawConn) // known reports one that is none
		return known(conn)
	})
	if err != nil {
		_ = w.User.Close()
		w.User = nil
	}
	return err
}

// Lend makes the *sql.Tx of the work. ready makes the transaction ready for a text of statements, or returns
// an error if they must not be executed.
func (w *Work) Lend(ctx context.Context, out *sql.DB, l Lender, ready func(ctx context.Context, text string) error) (err error) {
	w.cut, w.Stop = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // its session calls Stop
	if w.Tx, err = Lend(w.cut, out, lent{l, ready, w}); err != nil {
		_ = w.User.Close()
		return fmt.Errorf("lending the connection: %w", err)
	}
	return nil
}

// Take takes the transaction from the work. It waits for a call in progress. If ctx ends first, Take
// interrupts the call.
func (w *Work) Take(ctx context.Context) {
	defer context.AfterFunc(ctx, w.Stop)()
	_ = w.Tx.Rollback() // it only refuses later calls, and closes open rows
}

// lent is the connection of a session for the work. The session may connect anew until ready has returned.
type lent struct {
	lender Lender
	ready  func(ctx context.Context, text string) error
	work   *Work
}

// Close does nothing: the session ends the use of the connection.
func (lent) Close() error { return nil }

// Begin does nothing: the session begins the transaction.
func (c lent) Begin() (driver.Tx, error) { return c.lender, nil }

func (c lent) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c.lender, nil }

// enter makes the transaction ready for statements. The context that it returns also ends when the
// transaction is taken from the work.
func (c lent) enter(ctx context.Context, text string) (context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.work.cut, cancel)
	leave := func() { stop(); cancel() }
	if err := c.ready(ctx, text); err != nil {
		leave()
		return nil, nil, err
	}
	return ctx, leave, nil
}

func (c lent) sees(err error) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, driver.ErrSkip) {
		c.work.StmtErr = err
	}
	return err
}

func (c lent) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(ctx, text, func(ctx context.Context) (driver.Result, error) { return c.work.Conn.ExecContext(ctx, text, args) })
}

func (c lent) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	return c.query(ctx, text, func(ctx context.Context) (driver.Rows, error) { return c.work.Conn.QueryContext(ctx, text, args) })
}

func (c lent) exec(ctx context.Context, text string, run func(context.Context) (driver.Result, error)) (driver.Result, error) {
	ctx, leave, err := c.enter(ctx, text)
	if err != nil {
		return nil, err
	}
	defer leave()
	result, err := run(ctx)
	return result, c.sees(err)
}

func (c lent) query(ctx context.Context, text string, run func(context.Context) (driver.Rows, error)) (driver.Rows, error) {
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

func (c lent) Prepare(text string) (driver.Stmt, error) { return c.PrepareContext(c.work.cut, text) }

func (c lent) CheckNamedValue(v *driver.NamedValue) error { return checkValue(c.work.Conn, v) }

func checkValue(by any, v *driver.NamedValue) error {
	if checker, ok := by.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// PrepareContext is for a driver that prepares statements at the server.
func (c lent) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
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

	c    lent
	text string
}

func (s lentStmt) CheckNamedValue(v *driver.NamedValue) error { return checkValue(s.preparedStmt, v) }

func (s lentStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.exec(ctx, s.text, func(ctx context.Context) (driver.Result, error) { return s.preparedStmt.ExecContext(ctx, args) })
}

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

// lentRows are the rows of a query. Not every driver has further result sets.
type lentRows struct {
	typedRows

	c     lent
	leave func()
}

func (r lentRows) Next(into []driver.Value) error { return r.c.sees(r.typedRows.Next(into)) }

func (r lentRows) HasNextResultSet() bool {
	several, ok := r.typedRows.(driver.RowsNextResultSet)
	return ok && several.HasNextResultSet()
}

func (r lentRows) NextResultSet() error {
	if several, ok := r.typedRows.(driver.RowsNextResultSet); ok {
		return r.c.sees(several.NextResultSet())
	}
	return io.EOF
}

func (r lentRows) Close() error {
	defer r.leave()
	return r.c.sees(r.typedRows.Close())
}

var firstWord = regexp.MustCompile(`^[\s(]*([A-Za-z]*)`)

// FirstWord returns the first word of a text of SQL, in upper case. It is "" if a comment is before the word.
func FirstWord(text string) string { return strings.ToUpper(firstWord.FindStringSubmatch(text)[1]) }

// Several reports whether a text of SQL may have several statements: a semicolon stands before its end.
func Several(text string) bool { return strings.Contains(strings.TrimRight(text, "; \t\r\n"), ";") }

// Statements returns the words, in upper case, of each statement in a text of SQL, and its names in backticks.
// token matches a quoted text, a comment, a semicolon or a word of a database.
func Statements(token *regexp.Regexp, text string) (all [][]string) {
	var words []string
	for _, t := range append(token.FindAllString(strings.ToUpper(text), -1), ";") {
		switch {
		case t == ";":
			all = append(all, words)
			words = nil
		case !strings.ContainsAny(t[:1], "'\"[#-/"):
			words = append(words, t)
		}
	}
	return all
}
