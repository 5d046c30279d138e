package pgstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// sqlWork begins transactions of package database/sql.
type sqlWork struct{ db *sql.DB }

func (w sqlWork) begin(ctx context.Context) (transaction, error) {
	conn, err := w.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := sqlTx{conn: conn}
	err = conn.Raw(func(own any) (err error) {
		c, err := connOf(own)
		if err == nil {
			t.socket = c.PgConn().Conn()
		}
		return err
	})
	if err == nil {
		timer := time.AfterFunc(beginTime, func() { _ = t.socket.Close() })
		// The end of its context would roll the transaction back behind its owner's back.
		t.tx, err = conn.BeginTx(context.WithoutCancel(ctx), nil)
		timer.Stop()
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return t, nil
}

type sqlTx struct {
	tx     *sql.Tx
	conn   *sql.Conn
	socket net.Conn
}

func (t sqlTx) settle(ctx context.Context, statement string, args []any, into ...any) (found bool, err error) {
	err = t.tx.QueryRowContext(ctx, statement, args...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (t sqlTx) commit(ctx context.Context) error { return t.end(ctx, t.tx.Commit) }

func (t sqlTx) rollback(ctx context.Context) error { return t.end(ctx, t.tx.Rollback) }

// end ends the transaction and its connection. Neither call knows of contexts: when ctx ends
// before the server has answered, the connection is closed under them.
func (t sqlTx) end(ctx context.Context, how func() error) error {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = t.socket.Close()
		close(closed)
	})
	err := how()
	if !stop() {
		<-closed
		// Even if the answer was there before, no pool gets a connection that is closed.
		_ = t.conn.Raw(func(own any) error {
			if c, err := connOf(own); err == nil {
				_ = c.Close(ctx) // which has ended
			}
			return driver.ErrBadConn
		})
	}
	return errors.Join(err, ignoreDone(t.conn.Close()))
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}

func (t sqlTx) carried(ctx context.Context) context.Context {
	return context.WithValue(ctx, sqlTxKey{}, t.tx)
}

// configOf returns the settings with which the driver of db connects.
func configOf(ctx context.Context, db *sql.DB) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig("host=localhost") // what it is made of is replaced
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	err = conn.Raw(func(own any) error {
		c, err := connOf(own)
		if err == nil {
			cfg.ConnConfig = c.Config()
		}
		return err
	})
	return cfg, errors.Join(err, conn.Close())
}

// connOf returns the connection of pgx that a connection of package database/sql is.
func connOf(own any) (*pgx.Conn, error) {
	c, ok := own.(*stdlib.Conn)
	if !ok {
		return nil, fmt.Errorf("pgstore: NewSQL needs a *sql.DB of github.com/jackc/pgx/v5/stdlib, and this one has connections of type %T: "+
			"open it with sql.Open(\"pgx\", url), or use New with a pool", own)
	}
	return c.Conn(), nil
}
