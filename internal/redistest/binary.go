package redistest

import (
	"cmp"
	"os"
	"os/exec"
	"testing"
)

const howToInstall = `no redis-server: this test needs a real one.
Install it (apt-get install redis-server, brew install redis, dnf install redis)
or set REDIS_SERVER=/path/to/redis-server (or to a valkey-server).`

// binary finds the redis-server to run, or ends the test.
func binary(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server"))
	if err != nil {
		unavailable(tb, howToInstall, err)
	}
	return path
}

// unavailable ends a test that lacks a program: a build machine must not pass
// by skipping.
func unavailable(tb testing.TB, howToInstall string, err error) {
	tb.Helper()
	if os.Getenv("CI") == "true" {
		tb.Fatalf("%s\n%v", howToInstall, err)
	}
	tb.Skipf("SKIPPED, %s\n%v", howToInstall, err)
}
