//go:build unix

// Package campaign_test plays faults against orders in transactions of SQLite, by several
// processes on one file, and looks afterwards whether every order is there once.
package campaign_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(fileVariable); path != "" {
		fmt.Fprintln(os.Stderr, serve(path, os.Getenv(twinVariable)))
		os.Exit(1)
	}
	once.Faults(200)
	goleak.VerifyTestMain(m)
}

// rarePaths are to be taken by every campaign.
var rarePaths = []string{
	"killed, and committed",
	"killed, and not committed",
	"settle after a takeover",
	"settle failed, not committed",
	"stopped, and committed",
}

// Four processes of two callers each make the same few orders, and repeat each until it has its
// answer, while they are killed and stopped at every step of an order, their work outlasts its
// lease or is interrupted, the disk is full and other programs lock the files. Afterwards there is
// one row for each order that was answered, and one answer for every caller.
func TestOnce(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "injects hundreds of faults in real time")
	t.Parallel()
	var before once.Counts
	w := start(t, "")
	w.Run(w, once.Plan{Processes: 4, Callers: 2, More: func() bool { return w.misses(&before) }}, *once.FaultsFlag)
	require.Empty(t, w.Check(w))
	w.lookUpKilled()
	w.requireIntact()
	once.Save(t, "sqlite", w.Report(w))
	w.Took(rarePaths, &before)
	for _, path := range rarePaths {
		require.Positive(t, before.Get(path), "the campaign never went through %q", path)
	}
}

// The twins: the campaign finds each of them.
func TestOnceCatches(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "runs a campaign for each planted fault")
	for name := range twins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, name)
			w.Run(w, once.Plan{Processes: 4, Callers: 2, Twin: true}, 3000)
			require.NotEmpty(t, w.Check(w), "%s was not found out", w.Report(w))
		})
	}
}
