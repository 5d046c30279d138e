package pgstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// sqlWork takes connections of package database/sql. With a *sql.Tx of the same *sql.DB, the work
// could commit. So BEGIN is sent on the connection itself, and the work gets a *sql.Tx of another
// *sql.DB, which lends this connection, and whose driver refuses to end the transaction.
type sqlWork struct {
	db  *sql.DB
	out func() *sql.DB // makes the *sql.Tx of the work
}

func (w sqlWork) begin(ctx context.Context) (*session, error) {
	s := new(session)
	var own *stdlib.Conn
	s.connect = func(ctx context.Context) error {
		conn, err := acquireSQL(ctx, w.db)
		if err != nil {
			return err
		}
		err = conn.Raw(func(c any) (err error) {
			own, err = connOf(c)
			return err
		})
		if err != nil {
			_ = conn.Close()
			return err
		}
		s.conn = own.Conn()
		s.giveBack = func(broken bool) {
			if broken {
				_ = own.Conn().Close(context.WithoutCancel(ctx)) // sends nothing; a pool of pgx below db would keep the connection
				_ = conn.Raw(func(any) error { return driver.ErrBadConn })
			}
			_ = conn.Close()
		}
		return nil
	}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	if _, err := s.begin(ctx); err != nil {
		s.leave()
		return nil, err
	}
	tx, err := rowstore.Lend(context.WithoutCancel(ctx), w.out(), &lent{own, s})
	if err != nil {
		s.leave()
		return nil, err
	}
	s.takeBack = func() { _ = tx.Rollback() } // closes open rows
	s.carried = func(ctx context.Context) context.Context { return context.WithValue(ctx, sqlTxKey{}, tx) }
	return s, nil
}

// out makes the *sql.Tx of the work.
var out = rowstore.Lender{Refusal: errNotYours}

// lent is a connection of pgx's driver that its borrower cannot close.
type lent struct {
	*stdlib.Conn

	s *session
}

// Close does nothing.
func (*lent) Close() error { return nil }

// BeginTx does nothing: the transaction has begun.
func (*lent) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return out, nil }

// ExecContext calls pgx's driver, and looks at the command's tag.
func (c *lent) ExecContext(ctx context.Context, query string, named []driver.NamedValue) (driver.Result, error) {
	if _, err := c.s.begin(ctx); err != nil {
		return nil, err
	}
	args := make([]any, len(named))
	for i, n := range named {
		args[i] = n.Value
	}
	tag, err := c.s.conn.Exec(ctx, query, args...)
	c.s.noteEnd(tag)
	return driver.RowsAffected(tag.RowsAffected()), err
}

// QueryContext calls pgx's driver.
func (c *lent) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if _, err := c.s.begin(ctx); err != nil {
		return nil, err
	}
	rows, err := c.Conn.QueryContext(ctx, query, args)
	if own, ok := rows.(*stdlib.Rows); ok {
		rows = lentRows{own, ctx, c.s}
	}
	return rows, err
}

// lentRows note that the work has left them open. They are closed when their context ends, the
// context of the handler or of the transaction. The driver may then have closed the connection.
type lentRows struct {
	*stdlib.Rows

	ctx context.Context //nolint:containedctx // of the query
	s   *session
}

// Close calls pgx's driver.
func (r lentRows) Close() error {
	if r.s.over.Load() || r.ctx.Err() != nil {
		r.s.leftOpen.Store(true)
	}
	return r.Rows.Close()
}

// connOf returns the connection of pgx's driver below a connection of package database/sql.
func connOf(own any) (*stdlib.Conn, error) {
	c, ok := own.(*stdlib.Conn)
	if !ok {
		return nil, fmt.Errorf("pgstore: NewSQL needs a *sql.DB of github.com/jackc/pgx/v5/stdlib, and this one has connections of type %T: "+
			"open it with sql.Open(\"pgx\", url), or use New with a pool", own)
	}
	return c, nil
}

var _ interface {
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.NamedValueChecker
} = (*lent)(nil)
