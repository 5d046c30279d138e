package pgtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// Bouncer is a running PgBouncer. Its methods are safe for concurrent use.
type Bouncer struct {
	bin      string
	port     int
	prepares bool
	user     *user
	settings []string
	keeper   *keeper
	proc     *process
}

// PgBouncer starts a PgBouncer in transaction mode for tb, in front of all
// databases of the server at addr: [Cluster.Addr], or a proxy's. It lets in every
// user that the settings "user=name" list, and the superuser. Other settings are
// as in pgbouncer.ini ("default_pool_size=2") and override the defaults.
//
// It is killed when tb ends. Without pgbouncer, tb is skipped; if CI=true it fails.
func PgBouncer(tb testing.TB, addr string, settings ...string) *Bouncer {
	tb.Helper()
	b := &Bouncer{bin: bouncerBinary(tb), settings: settings}
	testmain.SkipIn(tb, testmain.Short, "starts PgBouncer")
	b.prepares = bouncerPrepares(tb, b.bin)
	var err error
	if b.user, err = unprivileged(); err == nil {
		b.keeper, err = newKeeper(b.user, "KILL")
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.remove)
	for range 5 { // as for the server, the first failure is not final
		if b.port, err = redistest.FreePort(); err != nil {
			break
		}
		if err = b.run(addr); err == nil {
			return b
		}
	}
	tb.Fatal(err)
	return nil
}

// run starts the process and waits until it answers.
func (b *Bouncer) run(addr string) error {
	ini, err := b.configure(addr)
	if err != nil {
		return err
	}
	if b.proc, err = spawn(b.keeper, b.user, "pgbouncer.log", b.bin, ini); err != nil {
		return err
	}
	ready := eventually(func() bool { return !b.proc.running() || b.answers() })
	if !ready || !b.proc.running() {
		b.proc.kill()
		return fmt.Errorf("pgtest: pgbouncer on port %d did not start: %v; its log:\n%s", b.port, b.proc.cmd.ProcessState, b.log())
	}
	return nil
}

// configure writes the files that pgbouncer reads.
func (b *Bouncer) configure(addr string) (ini string, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("pgtest: %w", err)
	}
	list := filepath.Join(b.keeper.dir, "users.txt")
	lines := []string{
		"[databases]", fmt.Sprintf("* = host=%s port=%s", host, port),
		"[pgbouncer]", "listen_addr=127.0.0.1", "listen_port=" + strconv.Itoa(b.port), "unix_socket_dir=",
		"auth_type=trust", "auth_file=" + list, "admin_users=" + superuser,
		"pool_mode=transaction", "ignore_startup_parameters=extra_float_digits",
	}
	if b.prepares {
		lines = append(lines, "max_prepared_statements=100")
	}
	users := []string{quoted(superuser)}
	for _, s := range b.settings {
		if name, ok := strings.CutPrefix(s, "user="); ok {
			users = append(users, quoted(name))
		} else {
			lines = append(lines, s)
		}
	}
	ini = filepath.Join(b.keeper.dir, "pgbouncer.ini")
	for path, content := range map[string][]string{list: users, ini: lines} {
		if err := os.WriteFile(path, []byte(strings.Join(content, "\n")+"\n"), 0o600); err != nil {
			return "", fmt.Errorf("pgtest: %w", err)
		}
		if err := b.user.own(path); err != nil {
			return "", err
		}
	}
	return ini, nil
}

// To has it serve the server at addr from now on, as after a failover: it reads its settings
// again, and closes the connections to the other server when their transactions are over. One
// that has ended starts again: PgBouncer 1.18 can end itself ("bad server state") when a
// server dies at the moment of a request to cancel. To is not for concurrent use.
func (b *Bouncer) To(tb testing.TB, addr string) {
	tb.Helper()
	_, err := b.configure(addr)
	if err == nil {
		_, err = b.command("RELOAD")
	}
	if err != nil && !b.proc.running() {
		err = b.run(addr)
	}
	if err != nil {
		tb.Fatalf("pgtest: pgbouncer: %v; it has ended: %v; its log:\n%s", err, b.proc.cmd.ProcessState, b.log())
	}
}

func (b *Bouncer) log() []byte {
	log, _ := os.ReadFile(filepath.Join(b.keeper.dir, "pgbouncer.log"))
	return log
}

// quoted is a line of the list of users, with an empty password.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `" ""` }

// answers asks the console, which needs no server behind it, who it is.
func (b *Bouncer) answers() bool {
	results, err := b.command("SHOW CONFIG")
	if err != nil || len(results) == 0 {
		return false
	}
	for _, row := range results[0].Rows {
		if string(row[0]) == "auth_file" {
			return string(row[1]) == filepath.Join(b.keeper.dir, "users.txt")
		}
	}
	return false
}

// command sends a command to the console.
func (b *Bouncer) command(command string) ([]*pgconn.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	config, err := pgx.ParseConfig(b.URL("pgbouncer", ""))
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	results, err := conn.PgConn().Exec(ctx, command).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("console: %s: %w", command, err)
	}
	return results, nil
}

func (b *Bouncer) remove() {
	if b.proc != nil {
		b.proc.kill()
	}
	b.keeper.end()
}

// Addr is "127.0.0.1:port".
func (b *Bouncer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// URL is as [Cluster.URL].
func (b *Bouncer) URL(db, user string) string { return databaseURL(b.Addr(), db, user) }

// Prepares reports whether clients may use prepared statements, which PgBouncer
// lets pass since version 1.21. Before, pgx needs QueryExecModeExec or
// QueryExecModeSimpleProtocol.
func (b *Bouncer) Prepares() bool { return b.prepares }

// Kill ends it at once (SIGKILL). On a killed one it does nothing.
func (b *Bouncer) Kill() { b.proc.kill() }

// Pause makes it stand still (SIGSTOP) until [Bouncer.Resume]: connections stay
// open, and nothing passes. It returns when it stands still.
func (b *Bouncer) Pause() { b.proc.pause() }

// Resume ends Pause.
func (b *Bouncer) Resume() { b.proc.resume() }

var bouncerVersion = regexp.MustCompile(`PgBouncer (\d+)\.(\d+)`)

// bouncerPrepares reads the program's version.
func bouncerPrepares(tb testing.TB, bin string) bool {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin, "--version").Output()
	m := bouncerVersion.FindSubmatch(out)
	if err != nil || m == nil {
		tb.Fatalf("pgtest: %s --version: %q, %v: is it a pgbouncer?", bin, out, err)
	}
	major, _ := strconv.Atoi(string(m[1])) // digits
	minor, _ := strconv.Atoi(string(m[2]))
	return major > 1 || minor >= 21
}
