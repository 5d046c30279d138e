package rowstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
)

// Lender makes the *sql.Tx of the work: it is the driver of a *sql.DB, and the driver's view of each
// transaction. Its connections are lent by their sessions, and its transactions neither begin nor end:
// Commit and Rollback return Refusal, and the sql.Tx cannot be used after either call.
type Lender struct{ Refusal error }

// NotYours returns the error of work that ends its transaction, in a store by the name of its package.
func NotYours(store string) error {
	return fmt.Errorf("%s: the guard commits this transaction with the receipt: return an error, or an answer that is not kept, to have it rolled back", store)
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
func (l Lender) Commit() error { return l.Refusal }

// Rollback is part of [driver.Tx].
func (l Lender) Rollback() error { return l.Refusal }

// Connect is part of [driver.Connector].
func (l Lender) Connect(ctx context.Context) (driver.Conn, error) {
	conn, ok := ctx.Value(lentKey{}).(driver.Conn)
	if !ok {
		return nil, l.Refusal
	}
	return conn, nil
}

// Driver is part of [driver.Connector].
func (l Lender) Driver() driver.Driver { return l }

// Open is part of [driver.Driver].
func (l Lender) Open(string) (driver.Conn, error) { return nil, l.Refusal }
