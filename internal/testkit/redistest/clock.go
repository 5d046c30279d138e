package redistest

import (
	"cmp"
	"context"
	_ "embed"
	endian "encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

//go:embed testdata/clock.c
var clockSource []byte

const noCompiler = `no C compiler: this test sets a redis-server's clock with a small library that it builds.
Install one (apt-get install gcc libc6-dev, dnf install gcc), or name it: CC=/path/to/cc.`

// Clock is the wall clock of one redis-server. No other process uses it.
type Clock struct {
	path   string
	server *Server // nil until it has started
}

// StartWithClock is [Start] with a clock that the test can set, forward and
// back, while the server runs. LD_PRELOAD gives the clock to the server, so
// systems other than Linux skip tb. Without a C compiler tb is skipped, and
// fails if CI=true.
func StartWithClock(tb testing.TB, args ...string) (*Server, *Clock) {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("SKIPPED: a server's clock can only be set on Linux")
	}
	bin := binary(tb)
	dir := tb.TempDir()
	library := filepath.Join(dir, "clock.so")
	compile(tb, library)
	c := &Clock{path: filepath.Join(dir, "ahead")}
	c.Set(tb, 0)
	s, err := launch(bin, args, "LD_PRELOAD="+library, "REDISTEST_CLOCK="+c.path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Remove)
	c.server = s
	c.Set(tb, -time.Hour) // not forward: a cluster that first looked then would wait for an hour
	c.Set(tb, 0)
	return s, c
}

// Set sets the clock ahead of the real clock, or behind it if ahead is negative.
// When Set returns, the server uses the new time. A server of Valkey 9 reads its
// clock ten times a second.
func (c *Clock) Set(tb testing.TB, ahead time.Duration) {
	tb.Helper()
	f, err := os.OpenFile(c.path, os.O_WRONLY|os.O_CREATE, 0o600) // not truncated: the server has it mapped
	if err == nil {
		err = endian.Write(f, endian.NativeEndian, ahead.Microseconds()) // in one write
		err = cmp.Or(err, f.Close())
	}
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	if c.server == nil {
		return
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		shows := time.Until(c.server.now(tb))
		if (shows - ahead).Abs() < 2*time.Second {
			return
		}
		if time.Since(began) > 10*time.Second {
			tb.Fatalf("redistest: %s does not look at the clock that it is given: it is ahead by %v, not by %v. "+
				"A statically linked server cannot be used here; name another: REDIS_SERVER=/path", c.server.bin, shows, ahead)
		}
	}
}

// now returns the time on the server's clock.
func (s *Server) now(tb testing.TB) time.Time {
	tb.Helper()
	pair, _ := s.Do(tb, "TIME").([]any) // of texts: seconds, microseconds
	if len(pair) != 2 {
		tb.Fatalf("redistest: TIME: %v", pair)
	}
	text, _ := pair[0].(string)
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		tb.Fatalf("redistest: TIME: %v", err)
	}
	return time.Unix(seconds, 0)
}

func compile(tb testing.TB, library string) {
	tb.Helper()
	words := strings.Fields(cmp.Or(os.Getenv("CC"), "cc")) // "gcc -m64" is common
	path, err := exec.LookPath(words[0])
	if err != nil {
		testmain.Unavailable(tb, noCompiler, err)
	}
	source := filepath.Join(filepath.Dir(library), "clock.c")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	args := slices.Concat(words[1:], []string{"-shared", "-fPIC", "-O2", "-o", library, source})
	cmd := exec.CommandContext(context.Background(), path, args...) //nolint:gosec // the compiler is the developer's choice
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("redistest: %v: %v\n%s", cmd, err, out)
	}
}
