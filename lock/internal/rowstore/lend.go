package rowstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
)

// Lender makes the *sql.Tx of the work. Its connections are lent by their sessions, and its
// transactions neither begin nor end: Commit and Rollback return Refusal, and the sql.Tx cannot be
// used after either call.
type Lender struct{ Refusal error }

// NotYours returns the error of work that ends its transaction, in a store by the name of its package.
func NotYours(store string) error {
	return fmt.Errorf("%s: the guard commits this transaction with the receipt: return an error, or an answer that is not kept, to have it rolled back", store)
}

type lentKey struct{}

// Open returns the database of the *sql.Tx.
func (l Lender) Open() *sql.DB {
	out := sql.OpenDB(lender{l})
	out.SetMaxIdleConns(-1) // no connection outlives its transaction
	return out
}

// Lend returns a *sql.Tx over conn, whose BeginTx returns the Lender's Tx. It ends with ctx.
func Lend(ctx context.Context, out *sql.DB, conn driver.Conn) (*sql.Tx, error) {
	return out.BeginTx(context.WithValue(ctx, lentKey{}, conn), nil)
}

// Tx returns the driver's view of the transaction.
func (l Lender) Tx() driver.Tx { return lentTx{l.Refusal} }

type lentTx struct{ refusal error }

func (t lentTx) Commit() error   { return t.refusal }
func (t lentTx) Rollback() error { return t.refusal }

// lender is the driver of a Lender.
type lender struct{ of Lender }

// Connect is part of [driver.Connector].
func (l lender) Connect(ctx context.Context) (driver.Conn, error) {
	conn, ok := ctx.Value(lentKey{}).(driver.Conn)
	if !ok {
		return nil, l.of.Refusal
	}
	return conn, nil
}

// Driver is part of [driver.Connector].
func (l lender) Driver() driver.Driver { return l }

// Open is part of [driver.Driver].
func (l lender) Open(string) (driver.Conn, error) { return nil, l.of.Refusal }
