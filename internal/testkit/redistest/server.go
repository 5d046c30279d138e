package redistest

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
	"sync"
	"testing"
	"time"
)

const startTimeout = 30 * time.Second

// Server is a redis-server process. Its methods are safe for concurrent use,
// but those that stop or kill it affect everyone who uses it.
type Server struct {
	bin      string
	dir      string
	port     int
	args     []string // without the port
	env      []string // in addition to the environment of the test
	password string

	mu   sync.Mutex
	proc *process
}

// Start starts a redis-server for tb and returns when it answers. It listens
// on a free port of 127.0.0.1, keeps nothing on disk and runs in its own
// directory ([Server.Dir]).
//
// args are appended to the command line ("--maxmemory", "1") and override
// those defaults, the port excepted. A relative path, such as that of a
// "--unixsocket", is relative to Dir. If args set "--requirepass", the
// clients and the URL that the Server hands out carry the password.
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
	tb.Cleanup(s.remove)
	return s
}

// launch starts a server; the caller has to call remove.
func launch(bin string, args []string, env ...string) (*Server, error) {
	if _, ok := option(args, "--port"); ok {
		return nil, errors.New("redistest: the port is chosen by Start")
	}
	dir, err := os.MkdirTemp("", "redistest-") // not TB.TempDir: its long paths do not fit a unix socket's address
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	s := &Server{bin: bin, dir: dir, args: args, env: env}
	s.password, _ = option(args, "--requirepass")
	// Between FreePort's look and the server's bind another process may take
	// the port, so the first failure is not final.
	for range 5 {
		if s.port, err = FreePort(); err != nil {
			break
		}
		if err = s.run(); err == nil {
			return s, nil
		}
	}
	_ = os.RemoveAll(dir)
	return nil, err
}

// run starts the process and waits until it answers.
func (s *Server) run() error {
	log, err := os.Create(filepath.Join(s.dir, "redis.log"))
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	args := append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "no",
	}, s.args...)
	cmd := exec.CommandContext(context.Background(), s.bin, args...) //nolint:gosec // the binary is the developer's choice
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = append(os.Environ(), s.env...)
	proc, err := spawn(cmd)
	if err != nil {
		return err
	}
	if err := s.await(proc); err != nil {
		proc.kill()
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w; its log:\n%s", err, text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc = proc
	return nil
}

// await returns when proc answers PING and has loaded its data.
func (s *Server) await(proc *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for !s.ready(ctx, proc) {
		select {
		case <-proc.exited:
			return fmt.Errorf("redistest: redis-server on port %d exited: %v", s.port, proc.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("redistest: redis-server on port %d did not answer within %v", s.port, startTimeout)
		case <-tick.C:
		}
	}
	return nil
}

// ready also makes sure that the answer is ours: a port can be taken by the
// server of another test process between our look and our bind.
func (s *Server) ready(ctx context.Context, proc *process) bool {
	// Not by the client: it logs a refused dial, and then pauses for a second.
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.Addr())
	if err != nil || conn.Close() != nil {
		return false
	}
	c := s.adminClient()
	defer func() { _ = c.Close() }()
	if err := c.Ping(ctx).Err(); err != nil {
		return false
	}
	info, err := c.InfoMap(ctx, "server").Result()
	return err == nil && info["Server"]["process_id"] == strconv.Itoa(proc.pid())
}

// remove kills the server and deletes its directory.
func (s *Server) remove() {
	s.Kill()
	_ = os.RemoveAll(s.dir)
}

// Addr is "127.0.0.1:port".
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Port is the TCP port.
func (s *Server) Port() int { return s.port }

// Dir is the server's working directory. It is deleted with the server.
func (s *Server) Dir() string { return s.dir }

// URL is "redis://127.0.0.1:port", with the password if there is one.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.password != "" {
		u.User = url.UserPassword("", s.password)
	}
	return u.String()
}

// Stop makes the process stand still (SIGSTOP): connections stay open and
// nothing is answered until [Server.Cont]. It returns when it stands still.
func (s *Server) Stop() { s.current().pause() }

// Cont lets a stopped process go on (SIGCONT).
func (s *Server) Cont() { s.current().resume() }

// Kill ends the process at once (SIGKILL), stopped or not, and returns when it
// is gone. On a killed server it does nothing.
func (s *Server) Kill() { s.current().kill() }

// Restart starts the server again on the same port, in the same directory and
// with the same arguments, and returns when it has loaded its data. A server
// that still runs is killed before.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Kill()
	var err error
	for range 20 { // another process's short-lived socket may occupy the port
		if err = s.run(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	tb.Fatal(err)
}

// Running reports whether the process exists, stopped or not.
func (s *Server) Running() bool { return s.current().running() }

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// option is the value of the last name in a redis-server command line.
func option(args []string, name string) (string, bool) {
	for i := len(args) - 2; i >= 0; i-- {
		if args[i] == name {
			return args[i+1], true
		}
	}
	return "", false
}
