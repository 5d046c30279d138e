package redistest

import (
	"cmp"
	"os"
	"os/exec"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const howToInstall = `no redis-server: this test needs a real one.
Install it (apt-get install redis-server, brew install redis, dnf install redis)
or set REDIS_SERVER=/path/to/redis-server (or to a valkey-server).`

// binary finds the redis-server to run, or ends the test.
func binary(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server"))
	if err != nil {
		testmain.Unavailable(tb, howToInstall, err)
	}
	return path
}
