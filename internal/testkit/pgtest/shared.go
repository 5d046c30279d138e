package pgtest

import (
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

var shared testmain.Shared[*Cluster]

// Main wraps m so that the cluster of [Shared] ends when the tests have run:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m).Run()) }
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }
func Main(m testmain.Runner) testmain.Runner { return shared.Main(m) }

// Shared returns the one cluster of this test process and starts it at the first
// call. Tests that use it neither kill, pause, restart nor configure it, use their own
// [Cluster.Database], and give unique names to the roles that they create, because roles belong to
// the whole cluster. TestMain has to use [Main].
func Shared(tb testing.TB) *Cluster {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Short, "starts PostgreSQL")
	bin := serverBinaries(tb)
	return shared.Get(tb, "pgtest: Shared needs a TestMain that uses pgtest.Main", func() (*Cluster, func(), error) {
		c, err := launch(bin, nil)
		if err != nil {
			return nil, nil, err
		}
		return c, c.remove, nil
	})
}
