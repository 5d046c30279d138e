package pgstore

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// sqlSettings are read from connections that package database/sql has made: the package does not
// give access to its connector and the connector's hooks. When the server rejects the settings,
// because a password has changed, newer settings are read from a younger connection.
type sqlSettings struct {
	db       *sql.DB
	last     atomic.Pointer[pgx.ConnConfig]
	learning chan struct{} // has room for the one call that learns the settings again
}

// config returns the configuration of the store's own pool.
func (s *sqlSettings) config(ctx context.Context) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig("host=localhost") // its parts are replaced
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	err = s.withConn(ctx, func(c *pgx.Conn) error {
		s.last.Store(c.Config())
		return nil
	})
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig = s.last.Load().Copy()
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		last := s.last.Load().Copy()
		last.RuntimeParams, last.OnNotice, last.ValidateConnect = c.RuntimeParams, c.OnNotice, c.ValidateConnect // by openOwn
		*c = *last
		return nil
	}
	return cfg, nil
}

// renew tries the settings of one connection of db after the other. It closes a connection whose
// settings are also rejected, so that db makes a new one with the current settings of its hooks.
func (s *sqlSettings) renew(ctx context.Context, try func() error) (err error) {
	rejectedOnes := s.last.Load()
	select {
	case s.learning <- struct{}{}:
		defer func() { <-s.learning }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.last.Load() != rejectedOnes {
		return try() // another call has renewed them
	}
	for range s.db.Stats().OpenConnections + 1 { // the last of them is a new one
		err = s.withConn(ctx, func(c *pgx.Conn) error {
			s.last.Store(c.Config())
			return try()
		})
		if err == nil || !rejected(err) {
			break
		}
	}
	return err
}

// withConn calls f with a connection of db. It closes the connection if f reports it as rejected.
func (s *sqlSettings) withConn(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}
	defer conn.Close() //nolint:errcheck // it goes back to its pool
	c, err := connOf(conn)
	if err == nil {
		err = f(c.Conn())
	}
	if err != nil && rejected(err) {
		drop(ctx, conn, c)
	}
	return err
}

// rejected reports whether err says that the server, or a PgBouncer, has rejected the user.
func rejected(err error) bool {
	if _, ok := errors.AsType[tls.AlertError](err); ok { // a certificate
		return true
	}
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(answer.Code, "28") || strings.Contains(answer.Message, "authentication failed"))
}

// acquireSQL takes a connection of db, whose driver asks a connection that was idle whether it is
// alive. Each silence closes that connection.
func acquireSQL(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	for {
		first, cancel := firstTry(ctx)
		conn, err := db.Conn(first)
		over := first.Err() != nil
		cancel()
		if err == nil || !over || ctx.Err() != nil {
			return conn, err
		}
	}
}

// connOf returns the connection of pgx's driver below a connection of package database/sql, which stays
// valid until conn is closed.
func connOf(conn *sql.Conn) (c *stdlib.Conn, err error) {
	err = conn.Raw(func(own any) (err error) {
		var ok bool
		if c, ok = own.(*stdlib.Conn); !ok {
			err = fmt.Errorf("pgstore: NewSQL needs a *sql.DB of github.com/jackc/pgx/v5/stdlib, and this one has connections of type %T: "+
				"open it with sql.Open(\"pgx\", url), or use New with a pool", own)
		}
		return err
	})
	return c, err
}

// drop closes conn, and the driver's connection c below it: a pool of pgx below the *sql.DB would keep c.
func drop(ctx context.Context, conn *sql.Conn, c *stdlib.Conn) {
	_ = c.Conn().Close(ctx)
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// sqlSession takes a connection of package database/sql. With a *sql.Tx of the same *sql.DB, the work
// could commit. So BEGIN is sent on the connection itself, and the work gets a *sql.Tx of another
// *sql.DB, the lender of this connection, whose driver refuses to end the transaction.
func sqlSession(ctx context.Context, db, lender *sql.DB) (*session, error) {
	s := new(session)
	var own *stdlib.Conn
	s.connect = func(ctx context.Context) error {
		conn, err := acquireSQL(ctx, db)
		if err != nil {
			return err
		}
		if own, err = connOf(conn); err != nil {
			_ = conn.Close()
			return err
		}
		s.conn = own.Conn()
		s.giveBack = func(broken bool) {
			if broken {
				drop(context.WithoutCancel(ctx), conn, own) // sends nothing
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
	tx, err := rowstore.Lend(context.WithoutCancel(ctx), lender, &lent{own, s})
	if err != nil {
		s.leave()
		return nil, err
	}
	s.takeBack = func() { _ = tx.Rollback() } // closes open rows
	s.carried = func(ctx context.Context) context.Context { return context.WithValue(ctx, sqlTxKey{}, tx) }
	return s, nil
}

// out makes the *sql.Tx of the work.
const out = rowstore.Lender("pgstore")

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

func (r lentRows) Close() error {
	if r.s.over.Load() || r.ctx.Err() != nil {
		r.s.leftOpen.Store(true)
	}
	return r.Rows.Close()
}
