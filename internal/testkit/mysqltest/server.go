package mysqltest

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// Server is a MariaDB or MySQL server with its databases. Its methods are safe for concurrent
// use, but methods that kill, pause or restart it affect every test that uses it.
type Server struct {
	*process.Program

	programs programs
	settings []string
	port     int
}

// Start makes the data of a new server for tb, starts it and returns when it answers. settings
// are as in a file of options ("max_connections=20"), and override the defaults of this package.
//
// The server is ended and its data removed when tb ends. Without a server, tb is skipped; if
// CI=true it fails.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Quick, "starts its own MariaDB")
	p := find(tb)
	s, err := launch(p, settings)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Remove)
	return s
}

var shared testmain.Shared[*Server]

// Main wraps m so that the server of [Shared] ends when the tests have run:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(mysqltest.Main(m)) }
func Main(m testmain.Runner) testmain.Runner { return shared.Main(m) }

// Shared returns the one server of this test process and starts it at the first call. Tests
// that use it neither kill, pause, restart nor configure it, use their own [Server.Database], and
// give unique names to the users that they create. TestMain has to use [Main].
func Shared(tb testing.TB) *Server {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Short, "starts MariaDB")
	p := find(tb)
	return shared.Get(tb, "mysqltest: Shared needs a TestMain that uses mysqltest.Main", func() (*Server, func(), error) {
		s, err := launch(p, nil)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Remove, nil
	})
}

// launch starts a server. The caller has to call Remove.
func launch(programs programs, settings []string) (*Server, error) {
	u, err := process.Unprivileged()
	if err != nil {
		return nil, err
	}
	p, err := process.New("mysqld", process.Killed, u)
	if err != nil {
		return nil, err
	}
	s := &Server{Program: p, programs: programs, settings: settings}
	if err = s.install(); err == nil {
		_, err = process.StartAtFreePort(func(port int) error {
			s.port = port
			return s.run()
		})
	}
	if err == nil && programs.install == "" { // MySQL's root can connect over the socket only
		err = s.exec("", "CREATE USER root@'127.0.0.1'; GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION")
	}
	if err != nil {
		p.Remove()
		return nil, err
	}
	return s, nil
}

// install makes the system tables, without the ones for interactive use.
func (s *Server) install() error {
	name, args := s.programs.server, []string{"--no-defaults", "--initialize-insecure"}
	if s.programs.install != "" {
		name, args = s.programs.install, []string{"--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"}
	}
	return s.command(name, append(args, "--basedir="+s.programs.base, "--datadir="+s.data(), "--tmpdir="+s.Dir, "--innodb-flush-log-at-trx-commit=0")...)
}

// command runs a program of the server to its end.
func (s *Server) command(name string, args ...string) error {
	_, err := s.output(name, args...)
	return err
}

// output runs a program of the server to its end, and returns its output.
func (s *Server) output(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*process.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // the binary is the developer's choice
	s.Prepare(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("mysqltest: %v: %w\n%s", cmd, err, out)
	}
	return string(out), nil
}

func (s *Server) data() string   { return filepath.Join(s.Dir, "data") }
func (s *Server) socket() string { return filepath.Join(s.Dir, "socket") }

// run starts the server and waits until it answers.
func (s *Server) run() error {
	// At its start, a server removes the temporary tables in its tmpdir. In a shared tmpdir, it
	// would remove tables of other servers.
	args := []string{"--no-defaults", "--basedir=" + s.programs.base, "--datadir=" + s.data(), "--tmpdir=" + s.Dir, "--socket=" + s.socket(), "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(s.port)}
	for _, set := range slices.Concat([]string{
		"innodb-flush-log-at-trx-commit=2", "sync-binlog=0", "innodb-buffer-pool-size=32M", "max-connections=300",
		"skip-name-resolve", "loose-mysqlx=OFF", "performance-schema=OFF", "pid-file=" + filepath.Join(s.Dir, "pid"), "secure-file-priv=" + s.Dir,
	}, s.settings) {
		args = append(args, "--"+set)
	}
	cmd := exec.CommandContext(context.Background(), s.programs.server, args...) //nolint:gosec // the binary is the developer's choice
	return s.Start(cmd, s.answers)
}

// answers reports whether the server answers. It uses the server's own socket, because another
// process may have taken the port.
func (s *Server) answers(int) bool {
	conn, err := net.DialTimeout("unix", s.socket(), process.Patience) //nolint:noctx // on this machine
	if err != nil {
		return false
	}
	_ = conn.Close()
	return s.exec("", "SELECT 1") == nil
}

// Addr returns "127.0.0.1:port", the same after each restart.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// DSN returns "user@tcp(127.0.0.1:port)/db", as go-sql-driver/mysql reads it. An empty user is
// root. params, such as "parseTime=true", follow.
func (s *Server) DSN(db, user string, params ...string) string {
	if user == "" {
		user = "root"
	}
	dsn := user + "@tcp(" + s.Addr() + ")/" + db
	if len(params) > 0 {
		dsn += "?" + strings.Join(params, "&")
	}
	return dsn
}

// Restart starts the server again on the same port and the same data, and returns when it has
// recovered and answers. A server that still runs is killed first.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Program.Restart(tb, s.run)
}

var databases atomic.Int64

// Database creates an empty database for tb and returns its name, new at every call. It is dropped
// when tb ends, unless the server is down at that time.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("t%d", databases.Add(1))
	s.Exec(tb, "", "CREATE DATABASE "+name)
	tb.Cleanup(func() {
		if !s.Running() {
			return
		}
		if err := s.exec("", "DROP DATABASE IF EXISTS "+name); err != nil {
			tb.Fatal(err)
		}
	})
	return name
}

// DatabaseDSN creates a database as [Server.Database] does, and returns root's DSN of it.
func (s *Server) DatabaseDSN(tb testing.TB, params ...string) string {
	tb.Helper()
	return s.DSN(s.Database(tb), "", params...)
}

// Exec runs statements in a database, "" for none, as root, or fails tb.
func (s *Server) Exec(tb testing.TB, db, sql string) {
	tb.Helper()
	if err := s.exec(db, sql); err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) exec(db, sql string) error {
	return s.command(s.programs.client, "--no-defaults", "--socket="+s.socket(), "--user=root", "--execute="+sql, "--database="+db)
}
