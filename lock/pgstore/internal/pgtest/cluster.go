package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const (
	startTimeout = 30 * time.Second
	superuser    = "postgres"
)

// Cluster is a PostgreSQL server with its databases. Its methods are safe for
// concurrent use, but those that kill, pause or restart it affect everyone who
// uses it.
type Cluster struct {
	bin      string // the directory of its programs
	settings []string
	port     int
	user     *user
	keeper   *keeper

	mu   sync.Mutex
	proc *process
}

// Start makes a new cluster for tb, starts its server and returns when that
// answers. settings are as in postgresql.conf ("max_connections=20") and override
// the defaults of this package, the port and the address excepted.
//
// The server is ended and its data removed when tb ends. Without PostgreSQL, tb
// is skipped; if CI=true it fails.
func Start(tb testing.TB, settings ...string) *Cluster {
	tb.Helper()
	bin := serverBinaries(tb)
	testmain.SkipIn(tb, testmain.Short, "starts its own PostgreSQL")
	c, err := launch(bin, settings)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.remove)
	return c
}

// launch starts a cluster; the caller has to call remove.
func launch(bin string, settings []string) (*Cluster, error) {
	for _, s := range settings {
		if name, _, ok := strings.Cut(s, "="); !ok || name == "port" || name == "listen_addresses" {
			return nil, fmt.Errorf("pgtest: setting %q: it has to be name=value, and port and address are chosen by Start", s)
		}
	}
	u, err := unprivileged()
	if err != nil {
		return nil, err
	}
	k, err := newKeeper(u, "QUIT")
	if err != nil {
		return nil, err
	}
	c := &Cluster{bin: bin, settings: settings, user: u, keeper: k}
	if err := c.initialize(); err != nil {
		k.end()
		return nil, err
	}
	// Between FreePort's look and the server's bind another process may take
	// the port, so the first failure is not final.
	for range 5 {
		if c.port, err = redistest.FreePort(); err != nil {
			break
		}
		if err = c.run(); err == nil {
			return c, nil
		}
	}
	k.end()
	return nil, err
}

// initialize runs initdb.
func (c *Cluster) initialize() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "initdb"), "--pgdata="+c.data(), "--username="+superuser, //nolint:gosec // the binary is the developer's choice
		"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = c.keeper.dir, environment(), c.user.attributes()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: %v: %w\n%s", cmd, err, out)
	}
	return nil
}

func (c *Cluster) data() string { return filepath.Join(c.keeper.dir, "data") }

// run starts the server and waits until it answers.
func (c *Cluster) run() error {
	args := []string{"-D", c.data()}
	for _, s := range append([]string{
		"fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=300", "max_wal_size=128MB",
		"unix_socket_directories=", "logging_collector=off", "log_line_prefix=%m [%p] %d ",
	}, c.settings...) {
		args = append(args, "-c", s)
	}
	args = append(args, "-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(c.port))
	proc, err := spawn(c.keeper, c.user, "postgres.log", filepath.Join(c.bin, "postgres"), args...)
	if err != nil {
		return err
	}
	ready := eventually(func() bool { return !proc.running() || c.answers() })
	if !ready || !proc.running() {
		proc.stop(quitSignal)
		return fmt.Errorf("pgtest: postgres on port %d did not start: %v; its log:\n%s", c.port, proc.cmd.ProcessState, c.Log())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proc = proc
	return nil
}

// answers also makes sure that the answer is ours: a port can be taken by the
// server of another test process between our look and our bind.
func (c *Cluster) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL(superuser, ""))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close(ctx) }()
	var dir string
	err = conn.QueryRow(ctx, "SHOW data_directory").Scan(&dir)
	return err == nil && dir == c.data()
}

// remove ends the server and deletes its data.
func (c *Cluster) remove() {
	c.forget()
	c.current().stop(quitSignal)
	c.keeper.end()
}

// forget gives the shared memory of a killed server back, which it could not do
// itself and a restarted one does.
func (c *Cluster) forget() {
	if c.Running() {
		return
	}
	text, _ := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return
	}
	if words := strings.Fields(lines[6]); len(words) == 2 { // its key and its id
		_ = exec.CommandContext(context.Background(), "ipcrm", "-m", words[1]).Run() //nolint:gosec // a number; 56 bytes that may stay
	}
}

// Addr is "127.0.0.1:port", the same through all restarts.
func (c *Cluster) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)) }

// URL is "postgres://user@127.0.0.1:port/db?sslmode=disable". An empty user is
// the superuser.
func (c *Cluster) URL(db, user string) string { return databaseURL(c.Addr(), db, user) }

func databaseURL(addr, db, user string) string {
	if user == "" {
		user = superuser
	}
	u := url.URL{Scheme: "postgres", User: url.User(user), Host: addr, Path: "/" + db, RawQuery: "sslmode=disable"}
	return u.String()
}

// Log returns the server's log since its last start.
func (c *Cluster) Log() string {
	text, err := os.ReadFile(filepath.Join(c.keeper.dir, "postgres.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	return string(text)
}

// Kill ends the postmaster and all its children at once (SIGKILL), paused or not,
// and returns when they are gone. On a killed server it does nothing.
func (c *Cluster) Kill() { c.current().kill() }

// Restart starts the server again on the same port and the same data, and returns
// when it has recovered and answers. A server that still runs is killed before.
func (c *Cluster) Restart(tb testing.TB) {
	tb.Helper()
	c.Kill()
	var err error
	for range 20 { // another process's short-lived socket may occupy the port
		if err = c.run(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	tb.Fatal(err)
}

// Pause makes the postmaster and its children stand still (SIGSTOP): connections
// stay open, new ones hang, and nothing is answered until [Cluster.Resume]. It
// returns when all stand still.
func (c *Cluster) Pause() { c.current().pause() }

// Resume ends Pause.
func (c *Cluster) Resume() { c.current().resume() }

// Running reports whether the postmaster exists, paused or not.
func (c *Cluster) Running() bool { return c.current().running() }

func (c *Cluster) current() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proc
}
