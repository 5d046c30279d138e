package history_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// enough histories find every bug that is planted.
const enough = 20

// bugs are planted, each with the kind of history that shows it.
var bugs = []struct {
	name   string
	family family
	plant  wrong
}{
	{"release without token", lasting, wrong{release: plainRelease}},
	{"settle without token", lasting, wrong{settle: plainSettle}},
	{"release of receipts", lasting, wrong{release: sweepingRelease}},
	{"release in the background", lasting, wrong{release: tardy}},
	{"renew that creates", lasting, wrong{renew: necromancer}},
	{"timeout taken for a failure", lasting, wrong{claim: hasty}},
	{"cached read", lasting, wrong{get: cached()}},
	{"claim of what is held", lapsing, wrong{claim: greedy}},
	{"takeover of a held entry", lapsing, wrong{claim: usurper}},
	{"takeover of any abandoned entry", lingering, wrong{claim: anyones}},
	{"lease too short", lapsing, stretched(0.5)},
	{"lease too long", lapsing, stretched(2)},
	{"less is left than it says", lapsing, wrong{get: reading(doubled)}},
	{"fence that repeats", fenced, wrong{claim: coarse, get: reading(first)}},
	{"late fenced claim", brief, wrong{claim: unguarded}},
}

// The twin of TestHistories: the same over stores that are wrong.
func TestPlantedBugsAreFound(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "makes histories until each planted bug is found")
	t.Parallel()
	findPlanted(t, onRedis{})
}

// The twin of TestHistoriesOverPostgres.
func TestPlantedBugsAreFoundOverPostgres(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "makes histories until each planted bug is found")
	t.Parallel()
	findPlanted(t, newPostgres(t))
}

// findPlanted requires that each bug is found.
func findPlanted(t *testing.T, s server) {
	t.Helper()
	t.Logf("-seed %d", *seedFlag)
	for _, bug := range bugs {
		if bug.name == "late fenced claim" && !s.deadlines() {
			continue
		}
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			f := bug.family.over(s)
			f.plant = &bug.plant
			c := new(once.Counts)
			for i := range uint64(enough) {
				if illegal, ok := errors.AsType[*illegalError](f.run(t, *seedFlag+i, c)); ok {
					t.Logf("found in history %d, in %d operations on a key", i+1, illegal.operations)
					require.FileExists(t, illegal.picture)
					return
				}
			}
			require.Fail(t, "not found", "in %d histories", enough)
		})
	}
}
