package rowstore

import (
	"context"
	"database/sql"
	"fmt"
)

// Work is a connection of a *sql.DB that work has for one transaction.
type Work struct {
	User *sql.Conn // of the pool
	Conn RawConn   // the same connection of its driver
	Tx   *sql.Tx   // of the work

	cut  context.Context    //nolint:containedctx // ends the calls of the work that are in progress
	stop context.CancelFunc // ends cut
}

// Connect takes a connection of db. raw returns the driver's, or an error if it is another driver's.
func (w *Work) Connect(ctx context.Context, db *sql.DB, raw func(conn any) (RawConn, error)) (err error) {
	if w.User, err = db.Conn(ctx); err != nil {
		return err
	}
	err = w.User.Raw(func(conn any) (err error) {
		w.Conn, err = raw(conn)
		return err
	})
	if err != nil {
		_ = w.User.Close()
		w.User = nil
	}
	return err
}

// Lend makes the *sql.Tx of the work, whose one connection is lent by its session s.
func (w *Work) Lend(ctx context.Context, out *sql.DB, l Lender, s Session) (err error) {
	w.cut, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	if w.Tx, err = Lend(w.cut, out, Lent{l, s, w}); err != nil {
		_ = w.User.Close()
		return fmt.Errorf("lending the connection: %w", err)
	}
	return nil
}

// Take takes the transaction from the work. It waits for a call in progress. If ctx ends first, Take
// interrupts the call.
func (w *Work) Take(ctx context.Context) {
	defer context.AfterFunc(ctx, w.stop)()
	_ = w.Tx.Rollback() // it only refuses later calls, and closes open rows
}

// Stop ends the calls of the work that are in progress.
func (w *Work) Stop() { w.stop() }
