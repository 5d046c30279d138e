package redistest

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/process"
)

// Server is a redis-server process. Its methods are safe for concurrent use,
// but methods that stop or kill it affect every test that uses it.
type Server struct {
	*process.Program

	bin      string
	port     int
	args     []string // without the port
	env      []string // in addition to the environment of the test
	password string
}

// Start starts a redis-server for tb and returns when it answers. It listens
// on a free port of 127.0.0.1, keeps nothing on disk and runs in its own
// directory ([Server.Dir]).
//
// args are appended to the command line ("--maxmemory", "1") and override
// these defaults, except the port. A relative path, such as the path of a
// "--unixsocket", is relative to Dir. If args set "--requirepass", the clients
// and the URL of the Server have the password.
//
// The server is killed when tb ends. Without a redis-server, tb is skipped; if
// CI=true it fails.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	bin := binary(tb)
	s, err := launch(bin, args)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Remove)
	return s
}

// launch starts a server. The caller has to call Remove.
func launch(bin string, args []string, env ...string) (*Server, error) {
	if _, ok := option(args, "--port"); ok {
		return nil, errors.New("redistest: the port is chosen by Start")
	}
	p, err := process.New("redistest", process.Killed, nil)
	if err != nil {
		return nil, err
	}
	s := &Server{Program: p, bin: bin, args: args, env: env}
	s.password, _ = option(args, "--requirepass")
	if err := s.startAt(s.command); err != nil {
		return nil, err
	}
	return s, nil
}

// startAt starts the server at a free port, or removes it.
func (s *Server) startAt(command func() *exec.Cmd) error {
	_, err := process.StartAtFreePort(func(port int) error {
		s.port = port
		return s.Start(command(), s.ready)
	})
	if err != nil {
		s.Remove()
	}
	return err
}

func (s *Server) command() *exec.Cmd {
	args := append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.Dir(),
		"--save", "", "--appendonly", "no",
	}, s.args...)
	cmd := exec.CommandContext(context.Background(), s.bin, args...) //nolint:gosec // the binary is the developer's choice
	cmd.Env = append(os.Environ(), s.env...)
	return cmd
}

// ready reports whether the server answers and has loaded its data. It also checks that our own
// server has answered: a program that does not ask [process.FreePort] may have taken the port.
func (s *Server) ready(pid int) bool {
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	// Not with the client, which logs a refused dial and then pauses for a second.
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	if err != nil || conn.Close() != nil {
		return false
	}
	c := adminClient(s)
	defer func() { _ = c.Close() }()
	if err := c.Ping(ctx).Err(); err != nil {
		return false
	}
	info, err := c.InfoMap(ctx, "server").Result()
	return err == nil && info["Server"]["process_id"] == strconv.Itoa(pid)
}

// Addr returns "127.0.0.1:port".
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Port returns the TCP port.
func (s *Server) Port() int { return s.port }

// Dir returns the server's working directory. It is deleted with the server.
func (s *Server) Dir() string { return s.Program.Dir }

// URL returns "redis://127.0.0.1:port", with the password if there is one.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.password != "" {
		u.User = url.UserPassword("", s.password)
	}
	return u.String()
}

// Stop stops the process (SIGSTOP): connections stay open and nothing is
// answered until [Server.Cont]. It returns when the process has stopped.
func (s *Server) Stop() { s.Pause() }

// Cont continues a stopped process (SIGCONT).
func (s *Server) Cont() { s.Resume() }

// Restart starts the server again on the same port, in the same directory and
// with the same arguments, and returns when it has loaded its data. A server
// that still runs is killed first.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Program.Restart(tb, func() error { return s.Start(s.command(), s.ready) })
}

// option returns the value of the last option name in a redis-server command line.
func option(args []string, name string) (string, bool) {
	for i := len(args) - 2; i >= 0; i-- {
		if args[i] == name {
			return args[i+1], true
		}
	}
	return "", false
}
