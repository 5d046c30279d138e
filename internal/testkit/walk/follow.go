package walk

import (
	"context"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// Do executes a block that is not for a shell. It fails tb if it cannot.
type Do func(tb testing.TB, text string)

// settings are the variables that a reader sets, each to a server that the walk starts.
var settings = map[string]func(testing.TB) string{
	"DATABASE_URL": pgtest.DatabaseURL,
	"REDIS_URL":    func(tb testing.TB) string { return redistest.Start(tb).URL() },
}

// Follow follows a page. others execute the blocks of languages that the package does not know.
// make test-all follows it.
func Follow(tb testing.TB, page string, others map[string]Do) {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Quick, "compiles programs")
	steps := stepsOf(tb, page, slices.Collect(maps.Keys(others)))
	for _, program := range programsOf(steps) {
		if _, err := exec.LookPath(program); err != nil {
			testmain.Unavailable(tb, program+" is not installed", err)
		}
	}
	awaitFree(tb, portsOf(steps))
	r := NewReader(tb)
	for i, s := range steps {
		switch {
		case s.file != "":
			r.Write(s.file, s.text)
		case s.other != "":
			others[s.other](tb, s.text)
		case s.setting != "":
			launch, known := settings[s.setting]
			if !known {
				tb.Fatalf("%s:%d: no walk has a server for %s", page, s.line, s.setting)
			}
			r.Type("export " + s.setting + "='" + launch(tb) + "'")
		default:
			r.follow(page, s)
			if s.background() && len(s.shown) == 0 {
				awaitListening(r.ctx, tb, s, steps[:i])
			}
		}
	}
}

// follow types the command of s, and compares the output.
func (r *Reader) follow(page string, s step) {
	r.tb.Helper()
	began := time.Now()
	done := r.run("{ " + s.command + "\n} </dev/null")
	end, missing, ok := match(s.shown, r.out.since(done.begin))
	if !ok && done.running {
		r.out.await(r.ctx, shownPatience, done.begin, func(printed string) bool {
			end, missing, ok = match(s.shown, printed)
			return ok
		})
	}
	printed := withoutMarks(r.out.since(done.begin))
	switch {
	case !ok:
		r.tb.Fatalf("%s:%d: $ %s\nhas not printed %q here, but\n%s", page, s.line, s.command, missing, printed)
	case (done.status != 0) != s.fails():
		r.tb.Fatalf("%s:%d: $ %s\nhas exit status %d, and printed\n%s", page, s.line, s.command, done.status, printed)
	}
	r.seen = max(r.seen, done.begin+end)
	r.tb.Logf("%v %s:%d\n$ %s\n%s", time.Since(began).Round(time.Millisecond), filepath.Base(page), s.line, s.command, printed)
}

// portsOf returns the ports that the files and commands of a page name.
func portsOf(steps []step) (ports []string) {
	var text strings.Builder
	for _, s := range steps {
		text.WriteString(s.text + s.command + "\n")
	}
	return Ports(text.String())
}

// awaitListening waits until the process that s has started accepts connections.
func awaitListening(ctx context.Context, tb testing.TB, s step, before []step) {
	tb.Helper()
	ports := Ports(s.command)
	if len(ports) == 0 {
		ports = portsOf(slices.DeleteFunc(slices.Clone(before), func(s step) bool { return s.file == "" }))
	}
	for _, port := range ports {
		awaitPort(tb, port, "nothing listens on it", func() (ok bool) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", "localhost:"+port)
			if err == nil {
				_ = conn.Close()
			}
			return err == nil
		})
	}
}

// awaitFree waits until no other process listens on the ports.
func awaitFree(tb testing.TB, ports []string) {
	tb.Helper()
	for _, port := range ports {
		awaitPort(tb, port, "another process listens on it", func() bool {
			listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "localhost:"+port)
			if err == nil {
				_ = listener.Close()
			}
			return err == nil
		})
	}
}

func awaitPort(tb testing.TB, port, otherwise string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(commandPatience); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("localhost:%s: %s", port, otherwise)
		}
	}
}
