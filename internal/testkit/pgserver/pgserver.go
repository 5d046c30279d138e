// Package pgserver gives databases of a real PostgreSQL to tests, and to the bench, of
// modules that cannot import the internal packages of module lock/pgstore. It needs no
// driver.
package pgserver

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const (
	module  = "github.com/httplatch/httplatch/lock/pgstore"
	command = "./internal/pgtest/cmd/pgserver"

	// noPostgres is the exit code of the command that says so.
	noPostgres = 3
)

var shared testmain.Shared[*Server]

// Main wraps m so that the server ends when the tests have run.
func Main(m testmain.Runner) testmain.Runner { return shared.Main(m) }

// Database makes a database in the one server of this test process, which the first call
// starts, and returns the superuser's URL of it. Without PostgreSQL tb is skipped; if
// CI=true it fails. TestMain has to use [Main].
func Database(tb testing.TB) string {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Short, "starts PostgreSQL")
	s := shared.Get(tb, "pgserver: Database needs a TestMain that uses pgserver.Main", func() (*Server, func(), error) { return launch(nil) })
	return s.Database(tb)
}

// Start starts a server for tb alone, with settings as in postgresql.conf ("fsync=on") that
// override those of tests. It ends with tb. Without PostgreSQL tb is skipped; if CI=true it
// fails.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Short, "starts PostgreSQL")
	s, end, err := launch(settings)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(end)
	s.available(tb)
	return s
}

func (s *Server) available(tb testing.TB) {
	tb.Helper()
	if s.missing != "" {
		testmain.Unavailable(tb, "no PostgreSQL server: this test needs a real one", fmt.Errorf("pgserver: %s", s.missing))
	}
}

// Database makes a database, and returns the superuser's URL of it.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	s.available(tb)
	url, err := s.database()
	if err != nil {
		tb.Fatal(err)
	}
	return url
}

// Server is a running server. It is safe for concurrent use.
type Server struct {
	missing string // why there is no PostgreSQL on this machine; "" if there is one
	dir     string
	cmd     *exec.Cmd
	stderr  bytes.Buffer // to be read when it has ended

	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
}

func launch(settings []string) (*Server, func(), error) {
	dir, err := os.MkdirTemp("", "pgserver-")
	if err != nil {
		return nil, nil, err
	}
	s := &Server{dir: dir}
	if err := s.start(settings); err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, fmt.Errorf("pgserver: %w", err)
	}
	if _, err := s.database(); err != nil {
		s.end()
		if s.cmd.ProcessState.ExitCode() == noPostgres {
			return &Server{missing: s.stderr.String()}, func() {}, nil
		}
		return nil, nil, fmt.Errorf("%w: %v: %s", err, s.cmd.ProcessState, s.stderr.String())
	}
	return s, s.end, nil
}

// start builds the command in the module's own directory, which knows its requirements.
func (s *Server) start(settings []string) error {
	ctx := context.Background()
	where, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("where is %s: %w", module, err)
	}
	path := filepath.Join(s.dir, "pgserver")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, command) //nolint:gosec // constant, except our own directory
	build.Dir = strings.TrimSpace(string(where))
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", command, err, out)
	}
	s.cmd = exec.CommandContext(ctx, path, settings...) //nolint:gosec // just built
	s.cmd.Stderr = &s.stderr
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	s.out = bufio.NewReader(out)
	return s.cmd.Start()
}

// database asks the command for one.
func (s *Server) database() (url string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.WriteString(s.in, "\n"); err != nil {
		return "", fmt.Errorf("pgserver: %w", err)
	}
	url, err = s.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("pgserver: %w", err)
	}
	return strings.TrimSuffix(url, "\n"), nil
}

func (s *Server) end() {
	_ = s.in.Close()
	_ = s.cmd.Wait() // what it has to say is for a launch that failed
	_ = os.RemoveAll(s.dir)
}
