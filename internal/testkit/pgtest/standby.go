package pgtest

import (
	"os"
	"strconv"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/process"
)

// Standby starts a hot standby that follows c: a separate server with a copy of the data, which can
// be killed, restarted and paused by itself. settings are as in [Start]. It ends with tb.
func (c *Cluster) Standby(tb testing.TB, settings ...string) *Cluster {
	tb.Helper()
	s, err := newCluster(c.bin, settings, func(s *Cluster) error { return s.copyOf(c) })
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.remove)
	return s
}

// copyOf runs pg_basebackup.
func (c *Cluster) copyOf(primary *Cluster) error {
	return c.make("pg_basebackup", "--host=127.0.0.1", "--port="+strconv.Itoa(primary.port), "--username="+superuser,
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-manifest", "--no-sync")
}

// Synchronize makes COMMITs of c wait for a standby from now on, and returns when the standby that
// follows c is synchronous.
func (c *Cluster) Synchronize(tb testing.TB) {
	tb.Helper()
	c.Exec(tb, superuser, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	c.Exec(tb, superuser, "SELECT pg_reload_conf()")
	c.AwaitStandby(tb, "sync")
}

// AwaitStandby returns when a standby follows c and is "sync" or "async".
func (c *Cluster) AwaitStandby(tb testing.TB, state string) {
	tb.Helper()
	if !process.Eventually(func() bool {
		rows, err := query(c.Addr(), superuser, "SELECT FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '"+state+"'")
		return err == nil && len(rows) == 1
	}) {
		tb.Fatalf("pgtest: no %s standby follows; the log of the primary:\n%s", state, c.Log())
	}
}

// Follow makes a server that was killed a standby of primary. It starts again on the same port,
// with a copy of the primary's data in place of its own data.
func (c *Cluster) Follow(tb testing.TB, primary *Cluster) {
	tb.Helper()
	c.Kill()
	c.forget()
	err := os.RemoveAll(c.data())
	if err == nil {
		err = c.copyOf(primary)
	}
	if err != nil {
		tb.Fatal(err)
	}
	c.Restart(tb)
}

// Promote makes a standby a primary, and returns when it is a primary.
func (c *Cluster) Promote(tb testing.TB) {
	tb.Helper()
	c.Exec(tb, superuser, "SELECT pg_promote(true, 30)")
}
