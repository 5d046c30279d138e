package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// Standby starts a hot standby that follows c: a server of its own with a copy of the data, to
// be killed, restarted and paused by itself. settings are as of [Start]. It ends with tb.
func (c *Cluster) Standby(tb testing.TB, settings ...string) *Cluster {
	tb.Helper()
	k, err := newKeeper(c.user, "QUIT")
	if err != nil {
		tb.Fatal(err)
	}
	s := &Cluster{bin: c.bin, settings: settings, user: c.user, keeper: k}
	if err = s.copyOf(c); err == nil {
		for range 5 { // as for the first server
			if s.port, err = redistest.FreePort(); err != nil {
				break
			}
			if err = s.run(); err == nil {
				tb.Cleanup(s.remove)
				return s
			}
		}
	}
	k.end()
	tb.Fatal(err)
	return nil
}

// copyOf runs pg_basebackup.
func (c *Cluster) copyOf(primary *Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "pg_basebackup"), "--pgdata="+c.data(), "--host=127.0.0.1", "--port="+strconv.Itoa(primary.port), //nolint:gosec // the binary is the developer's choice
		"--username="+superuser, "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-manifest", "--no-sync")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = c.keeper.dir, environment(), c.user.attributes()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: %v: %w\n%s", cmd, err, out)
	}
	return nil
}

// Synchronize has COMMITs of c wait for a standby from now on, and returns when the one that
// follows c is it.
func (c *Cluster) Synchronize(tb testing.TB) {
	tb.Helper()
	c.Exec(tb, superuser, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	c.Exec(tb, superuser, "SELECT pg_reload_conf()")
	c.AwaitStandby(tb, "sync")
}

// AwaitStandby returns when a standby follows c and is "sync" or "async".
func (c *Cluster) AwaitStandby(tb testing.TB, state string) {
	tb.Helper()
	if !eventually(func() bool {
		n, err := c.count("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '" + state + "'")
		return err == nil && n == 1
	}) {
		tb.Fatalf("pgtest: no %s standby follows; the log of the primary:\n%s", state, c.Log())
	}
}

// count returns the number that a statement returns.
func (c *Cluster) count(sql string) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL(superuser, ""))
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, sql).Scan(&n)
	return n, err //nolint:wrapcheck // of a test
}

// Follow makes a server that was killed a standby of primary: it starts again on the same
// port, with a copy of the primary's data in place of its own.
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

// Promote makes a standby a primary, and returns when it is one.
func (c *Cluster) Promote(tb testing.TB) {
	tb.Helper()
	c.Exec(tb, superuser, "SELECT pg_promote(true, 30)")
}
