package testmain

import (
	"os"
	"testing"
)

// Run is a run of the tests that leaves some tests out. make test and make search are not such
// runs: together they leave out nothing.
type Run uint8

const (
	// Short is go test -short, the run of make check, and of make test-newer with another Go.
	Short Run = 1 << iota
	// NewerServers is the run of make test-servers, which repeats the tests of the stores with
	// other servers.
	NewerServers
)

// repeats is the environment variable with which the Makefile marks a run that repeats other runs.
const repeats = "TEST_REPEATS_WITH"

// SkipIn skips the test in runs, for a reason such as "waits for 40 s". make test, or make search,
// still runs it: a test that CI does not run keeps no promise.
func SkipIn(tb testing.TB, runs Run, why string) {
	tb.Helper()
	if run := current(); runs&run != 0 {
		tb.Skipf("not in this run: %s", why)
	}
}

// current returns the present run.
func current() Run {
	var run Run
	if testing.Testing() && testing.Short() { // programs outside of tests start servers by the same helpers
		run |= Short
	}
	if os.Getenv(repeats) == "newer servers" {
		run |= NewerServers
	}
	return run
}
