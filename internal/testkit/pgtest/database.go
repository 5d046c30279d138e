package pgtest

import (
	"fmt"
	"sync/atomic"
	"testing"
)

var databases atomic.Int64

// Database creates an empty database for tb and returns its name, new at every
// call. It is dropped when tb ends, with the sessions that are left in it, unless
// the server is down at that time.
func (c *Cluster) Database(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("t%d", databases.Add(1))
	c.Exec(tb, superuser, "CREATE DATABASE "+name)
	tb.Cleanup(func() {
		if !c.Running() {
			return
		}
		if err := c.exec(superuser, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			tb.Fatalf("pgtest: %v", err)
		}
	})
	return name
}

// DatabaseURL is [Cluster.DatabaseURL] of the [Shared] cluster.
func DatabaseURL(tb testing.TB) string {
	tb.Helper()
	return Shared(tb).DatabaseURL(tb)
}

// DatabaseURL creates a database as [Cluster.Database] does, and returns the superuser's URL of it.
func (c *Cluster) DatabaseURL(tb testing.TB) string {
	tb.Helper()
	return c.URL(c.Database(tb), "")
}

// Exec runs statements without parameters in a database, as superuser and on
// its own connection, or fails tb.
func (c *Cluster) Exec(tb testing.TB, db, sql string) {
	tb.Helper()
	if err := c.exec(db, sql); err != nil {
		tb.Fatalf("pgtest: %s: %v", sql, err)
	}
}

func (c *Cluster) exec(db, sql string) error {
	_, err := query(c.Addr(), db, sql)
	return err
}
