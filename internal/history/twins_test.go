package history_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// enough histories find every bug that is planted.
const enough = 20

// The twin of TestHistories: the same over stores that are wrong.
func TestPlantedBugsAreFound(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "makes histories until each planted bug is found")
	t.Parallel()
	findPlanted(t, onRedis{}, []planted{
		{"plain DEL", lasting, plantPlainDel},
		{"plain SET NX with retries", lasting, plantPlainSetNX},
		{"settle without token", lasting, plantPlainSettle},
		{"release of receipts", lasting, plantSweepingRelease},
		{"timeout taken for a failure", lasting, plantHasty},
		{"renew that creates", lasting, plantNecromancer},
		{"cached read", lasting, plantCached},
		{"takeover of any abandoned entry", lingering, plantAnyones},
		{"takeover of a held entry", lapsing, plantUsurper},
		{"lease too short", lapsing, plantStretched(0.5)},
		{"lease too long", lapsing, plantStretched(2)},
		{"fence that repeats", fenced, plantCoarse(1_000_000)},
		{"late fenced claim", brief, plantUnguarded},
		{"release in the background", lasting, plantTardy},
	})
}

// The twin of TestHistoriesOverPostgres.
func TestPlantedBugsAreFoundOverPostgres(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "makes histories until each planted bug is found")
	t.Parallel()
	findPlanted(t, newPostgres(t), []planted{
		{"renew without token", lasting, plantPlainRenew},
		{"release without token", lasting, plantPlainDelete},
		{"settle without token", lasting, plantPlainSettle},
		{"claim that looks at no expiry", lasting, plantGreedy},
		{"claim that overlooks what is over", lapsing, plantUnforgiving},
		{"settle after expiry", brief, plantLateSettle},
		{"release of receipts", lasting, plantSweepingRelease},
		{"timeout taken for a failure", lasting, plantHasty},
		{"renew that creates", lasting, plantNecromancer},
		{"cached read", lasting, plantCached},
		{"takeover of any abandoned entry", lingering, plantAnyones},
		{"takeover of a held entry", lapsing, plantUsurper},
		{"lease too short", lapsing, plantStretched(0.5)},
		{"lease too long", lapsing, plantStretched(2)},
		{"fence that repeats", fenced, plantCoarse(5)},
		{"release in the background", lasting, plantTardy},
	})
}

// planted is a bug, and the kind of history that shows it.
type planted struct {
	name   string
	family family
	plant  planting
}

// findPlanted requires that each bug is found.
func findPlanted(t *testing.T, s server, bugs []planted) {
	t.Helper()
	t.Logf("-seed %d", *seedFlag)
	for _, bug := range bugs {
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			f := bug.family.over(s)
			f.plant = bug.plant
			c := newCounts()
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

// planting makes the store of the server at addr wrong, in one thing.
type planting func(t *testing.T, addr string, s store) store

// naive is a client with the options that go-redis has by default.
func naive(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// nameOf returns the name of the entry of key in redisstore.
func nameOf(key string) string { return "latch:lock:" + key }
