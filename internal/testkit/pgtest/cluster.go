package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const superuser = "postgres"

// Cluster is a PostgreSQL server with its databases. Its methods are safe for
// concurrent use, but methods that kill, pause or restart it affect every test that uses it. Pause
// stops the postmaster and its children (SIGSTOP), so that connections stay open, new ones hang,
// and nothing is answered until Resume.
type Cluster struct {
	*process.Program

	bin      string // the directory of its programs
	settings []string
	port     int
}

// Start makes a new cluster for tb, starts its server and returns when the server
// answers. settings are as in postgresql.conf ("max_connections=20") and override
// the defaults of this package, except the port and the address.
//
// The server is ended and its data removed when tb ends. Without PostgreSQL, tb
// is skipped; if CI=true it fails.
func Start(tb testing.TB, settings ...string) *Cluster {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Quick, "starts its own PostgreSQL")
	bin := serverBinaries(tb)
	c, err := launch(bin, settings)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.remove)
	return c
}

// launch starts a cluster. The caller has to call remove.
func launch(bin string, settings []string) (*Cluster, error) {
	for _, s := range settings {
		if name, _, ok := strings.Cut(s, "="); !ok || name == "port" || name == "listen_addresses" {
			return nil, fmt.Errorf("pgtest: setting %q: it has to be name=value, and port and address are chosen by Start", s)
		}
	}
	return newCluster(bin, settings, (*Cluster).initialize)
}

// newCluster starts a server over the data that fill makes.
func newCluster(bin string, settings []string, fill func(*Cluster) error) (*Cluster, error) {
	u, err := process.Unprivileged()
	if err != nil {
		return nil, err
	}
	p, err := process.New("postgres", process.Quit, u)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Program: p, bin: bin, settings: settings}
	if err = fill(c); err == nil {
		_, err = process.StartAtFreePort(func(port int) error {
			c.port = port
			return c.run()
		})
	}
	if err != nil {
		p.Remove()
		return nil, err
	}
	return c, nil
}

// initialize runs initdb.
func (c *Cluster) initialize() error {
	return c.make("initdb", "--username="+superuser, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
}

// make runs a program of PostgreSQL that makes the data.
func (c *Cluster) make(program string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*process.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, program), append(args, "--pgdata="+c.data())...) //nolint:gosec // the binary is the developer's choice
	cmd.Env = environment()
	c.Prepare(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: %v: %w\n%s", cmd, err, out)
	}
	return nil
}

// environment returns the environment of the tests without the variables that
// PostgreSQL's programs obey: PGDATA, PGPORT, PGUSER, and the language of
// messages.
func environment() []string {
	return append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "LC_") || strings.HasPrefix(v, "LANG")
	}), "LC_ALL=C")
}

func (c *Cluster) data() string { return filepath.Join(c.Dir, "data") }

// run starts the server and waits until it answers.
func (c *Cluster) run() error {
	args := []string{"-D", c.data()}
	for _, s := range slices.Concat([]string{
		"fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=300", "max_wal_size=128MB",
		"unix_socket_directories=", "logging_collector=off", "log_line_prefix=%m [%p] %d ",
	}, c.settings, []string{"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(c.port)}) {
		args = append(args, "-c", s)
	}
	cmd := exec.CommandContext(context.Background(), filepath.Join(c.bin, "postgres"), args...) //nolint:gosec // the binary is the developer's choice
	cmd.Env = environment()
	return c.Start(cmd, c.answers)
}

// answers reports whether our own server answers: the server of another test
// process may have taken the port after it was chosen.
func (c *Cluster) answers(int) bool {
	rows, err := query(c.Addr(), superuser, "SHOW data_directory")
	return err == nil && rows[0][0] == c.data()
}

// remove ends the server and deletes its data.
func (c *Cluster) remove() {
	c.forget()
	c.Remove()
}

// forget frees the shared memory of a killed server. The killed server could
// not free it, and only a restarted server would.
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

// Addr returns "127.0.0.1:port", the same after each restart.
func (c *Cluster) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)) }

// URL returns "postgres://user@127.0.0.1:port/db?sslmode=disable". An empty
// user is the superuser.
func (c *Cluster) URL(db, user string) string { return databaseURL(c.Addr(), db, user) }

func databaseURL(addr, db, user string) string {
	if user == "" {
		user = superuser
	}
	u := url.URL{Scheme: "postgres", User: url.User(user), Host: addr, Path: "/" + db, RawQuery: "sslmode=disable"}
	return u.String()
}

// Restart starts the server again on the same port and the same data, and returns
// when it has recovered and answers. A server that still runs is killed first.
func (c *Cluster) Restart(tb testing.TB) {
	tb.Helper()
	c.Program.Restart(tb, c.run)
}
