package pgtest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

var databases atomic.Int64

// Database creates an empty database for tb and returns its name, new at every
// call. It is dropped when tb ends, with the sessions that are left in it, unless
// the server is down then.
func (c *Cluster) Database(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("t%d", databases.Add(1))
	c.Exec(tb, superuser, "CREATE DATABASE "+name)
	tb.Cleanup(func() {
		if !c.Running() {
			return
		}
		if err := c.exec(superuser, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	return name
}

// Exec runs statements without parameters in a database, as superuser and on a
// connection of its own, or fails tb.
func (c *Cluster) Exec(tb testing.TB, db, sql string) {
	tb.Helper()
	if err := c.exec(db, sql); err != nil {
		tb.Fatalf("pgtest: %s: %v", sql, err)
	}
}

func (c *Cluster) exec(db, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL(db, ""))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("execute: %w", err)
	}
	return nil
}

// Conn connects to a database as superuser. The connection is closed when tb ends.
func (c *Cluster) Conn(tb testing.TB, db string) *pgx.Conn {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL(db, ""))
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}
