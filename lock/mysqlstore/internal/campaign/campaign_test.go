// Package campaign_test plays faults against orders in transactions of MariaDB or MySQL, and looks
// afterwards whether every order is there once.
package campaign_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestMain(m *testing.M) {
	once.Faults(200)
	goleak.VerifyTestMain(mysqltest.Main(m))
}

// rarePaths are to be taken by every campaign.
var rarePaths = []string{
	"commit unanswered and applied",
	"commit unanswered and not applied",
	"late commit found no claim",
	"settle after a takeover",
}

// Eight processes make the same few orders, and repeat each until it has its answer, while
// exchanges with the server are lost, cut, delayed and delivered late, its sessions, the server
// itself and the processes are killed, and deadlocks roll back their work. Afterwards there is one
// row for each order that was answered, and one answer for every caller.
func TestOnce(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "injects hundreds of faults in real time")
	t.Parallel()
	var taken once.Counts
	w := start(t, nil)
	w.Run(w, once.Plan{Processes: 8, Callers: 1, More: func() bool { return w.Misses(rarePaths, &taken) }}, *once.FaultsFlag)
	require.Empty(t, w.Check(w))
	once.Save(t, "mysql", w.Report(w))
	w.Took(rarePaths, &taken)
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
			w := start(t, broken)
			w.Run(w, once.Plan{Processes: 8, Callers: 1, Twin: true}, 3000)
			require.NotEmpty(t, w.Check(w), "%s was not found out", w.Report(w))
		})
	}
}
