// Package campaign plays faults against work that runs in transactions of PostgreSQL, and
// looks afterwards whether every order is there once.
package campaign_test

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// pgx is done with a connection whose server is silent after a quarter of a minute.
	goleak.VerifyTestMain(pgtest.Main(m), goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"))
}

// Eight processes make the same few orders, and repeat each until it has its answer, while
// exchanges with the server are lost, cut, delayed and delivered late, its sessions, the server
// itself and the processes are killed. Afterwards there is one row for each order that was
// answered, and one answer for every caller.
func TestOnce(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "injects hundreds of faults in real time")
	t.Parallel()
	var taken once.Counts
	for _, name := range []string{"direct", "PgBouncer"} {
		t.Run(name, func(t *testing.T) {
			w := start(t, name == "PgBouncer", nil)
			plan := once.Plan{Processes: callers, Callers: 1}
			if w.bounced {
				plan.More = func() bool { return w.Misses(rarePaths, &taken) }
			}
			w.Run(w, plan, *once.FaultsFlag/2)
			require.Empty(t, w.Check(w))
			once.Save(t, "postgres-"+name, w.Report(w))
			w.Took(rarePaths, &taken)
		})
	}
	for _, path := range rarePaths {
		require.Positive(t, taken.Get(path), "the campaign never went through %q", path)
	}
}

// The twins: the campaign finds each of them.
func TestOnceCatches(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "runs a campaign for each planted fault")
	for name, broken := range twins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, false, broken)
			w.Run(w, once.Plan{Processes: callers, Callers: 1, Twin: true}, 3000)
			require.NotEmpty(t, w.Check(w), "%s was not found out", w.Report(w))
		})
	}
}
