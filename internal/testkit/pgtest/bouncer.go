package pgtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// Bouncer is a running PgBouncer. Its methods are safe for concurrent use.
type Bouncer struct {
	*process.Program

	bin      string
	port     int
	prepares bool
	settings []string
}

// PgBouncer starts a PgBouncer in transaction mode for tb, in front of all
// databases of the server at addr: [Cluster.Addr], or a proxy's. It lets in every
// user that the settings "user=name" list, and the superuser. Other settings are
// as in pgbouncer.ini ("default_pool_size=2") and override the defaults.
//
// It is killed when tb ends. Without pgbouncer, tb is skipped; if CI=true it fails.
func PgBouncer(tb testing.TB, addr string, settings ...string) *Bouncer {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Quick, "starts PgBouncer")
	b := &Bouncer{bin: bouncerBinary(tb), settings: settings}
	b.prepares = bouncerPrepares(tb, b.bin)
	u, err := process.Unprivileged()
	if err == nil {
		b.Program, err = process.New("pgbouncer", process.Killed, u)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Remove)
	if _, err = process.StartAtFreePort(func(port int) error {
		b.port = port
		return b.run(addr)
	}); err != nil {
		tb.Fatal(err)
	}
	return b
}

// run starts the process and waits until it answers.
func (b *Bouncer) run(addr string) error {
	ini, err := b.configure(addr)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), b.bin, ini) //nolint:gosec // the binary is the developer's choice
	cmd.Env = environment()
	return b.Start(cmd, b.answers)
}

// configure writes the files that pgbouncer reads.
func (b *Bouncer) configure(addr string) (ini string, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("pgtest: %w", err)
	}
	list := filepath.Join(b.Dir, "users.txt")
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
	ini = filepath.Join(b.Dir, "pgbouncer.ini")
	for path, content := range map[string][]string{list: users, ini: lines} {
		if err := os.WriteFile(path, []byte(strings.Join(content, "\n")+"\n"), 0o600); err != nil {
			return "", fmt.Errorf("pgtest: %w", err)
		}
		if err := b.Own(path); err != nil {
			return "", err
		}
	}
	return ini, nil
}

// To makes it serve the server at addr from now on, as after a failover: it reads its settings
// again, and closes the connections to the other server when their transactions are over. A
// PgBouncer that has ended starts again: PgBouncer 1.18 can end itself ("bad server state") when a
// server dies at the moment of a request to cancel. To is not for concurrent use.
func (b *Bouncer) To(tb testing.TB, addr string) {
	tb.Helper()
	_, err := b.configure(addr)
	if err == nil {
		_, err = query(b.Addr(), "pgbouncer", "RELOAD")
	}
	if err != nil && !b.Running() {
		err = b.run(addr)
	}
	if err != nil {
		tb.Fatalf("pgtest: pgbouncer: %v; %s; its log:\n%s", err, b.State(), b.Log())
	}
}

// quoted returns a line of the list of users, with an empty password.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `" ""` }

// answers reports whether the console answers. The console needs no server behind PgBouncer.
func (b *Bouncer) answers(int) bool {
	rows, err := query(b.Addr(), "pgbouncer", "SHOW CONFIG")
	return err == nil && slices.ContainsFunc(rows, func(row []string) bool {
		return row[0] == "auth_file" && row[1] == filepath.Join(b.Dir, "users.txt")
	})
}

// Addr returns "127.0.0.1:port".
func (b *Bouncer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// URL returns a URL like [Cluster.URL].
func (b *Bouncer) URL(db, user string) string { return databaseURL(b.Addr(), db, user) }

// Prepares reports whether clients may use prepared statements, which PgBouncer
// supports since version 1.21. With an older version, pgx needs
// QueryExecModeExec or QueryExecModeSimpleProtocol.
func (b *Bouncer) Prepares() bool { return b.prepares }

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
