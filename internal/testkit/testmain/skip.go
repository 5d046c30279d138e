package testmain

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// Run is a run of the tests that leaves some tests out. make test-all is not such a run: it leaves
// out nothing.
type Run uint8

const (
	// Short is go test -short, the run of make check, and of make test-newer with another Go. It
	// also leaves out what Quick leaves out.
	Short Run = 1 << iota
	// Quick is the run of make test. It leaves out each test that can fail on a slow machine,
	// because it measures or limits a time, and each test that needs a program besides the servers
	// of the stores, more than one such server, or more than a few seconds.
	Quick
	// NewerServers is the run of make test-servers, which repeats the tests of the stores with
	// other servers.
	NewerServers
)

const (
	// marked is the environment variable with which the Makefile names a run: "quick", or "newer
	// servers".
	marked = "TEST_RUN"
	// leftOut is the environment variable that names the file in which a run notes each test that
	// it does not run, a line each: package, test, reason.
	leftOut = "TEST_LEFT_OUT"
)

// SkipIn skips the test in runs, for a reason such as "waits for 40 s". make test-all still runs
// it: a test that CI does not run keeps no promise.
func SkipIn(tb testing.TB, runs Run, why string) {
	tb.Helper()
	if run := current(); runs&run != 0 {
		noteLeftOut(tb, why)
		tb.Skipf("not in this run: %s", why)
	}
}

// current returns the present run.
func current() Run {
	var run Run
	if testing.Testing() && testing.Short() { // programs outside of tests start servers by the same helpers
		run |= Short | Quick
	}
	switch os.Getenv(marked) {
	case "quick":
		run |= Quick
	case "newer servers":
		run |= NewerServers
	}
	return run
}

// noteLeftOut notes the test in the file of the run, so that the Makefile can report it and run it
// later.
func noteLeftOut(tb testing.TB, why string) {
	tb.Helper()
	file := os.Getenv(leftOut)
	if _, judged := tb.(*Verdict); judged || file == "" {
		return
	}
	info, _ := debug.ReadBuildInfo()
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the Makefile's choice
	if err == nil {
		_, err = fmt.Fprintf(out, "%s\t%s\t%s\n", strings.TrimSuffix(info.Path, ".test"), tb.Name(), why)
		_ = out.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
}
