package quorum_test

import (
	"context"
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/quorum"
)

var (
	firstSeed = flag.Uint64("seed", 0, "first seed of the stress test")
	seeds     = flag.Uint64("seeds", 50, "number of seeds of the stress test; make faults tries 300")
)

// Random work of several processes over one quorum, each node of which is behind
// its own network, which loses, delays and refuses at random.
func TestStress(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "searches at random")
	t.Parallel()
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		require.Empty(t, stress(t, seed, quorum.New), "seed %d", seed)
	}
}

// The twin: a quorum for which a minority is enough.
func TestStressCatchesMinority(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "searches at random")
	for seed := range uint64(200) {
		if found := stress(t, seed, quorum.WithoutMajority); len(found) > 0 {
			t.Logf("seed %d: %s", seed, found[0])
			return
		}
	}
	t.Error("nothing was found in 200 seeds")
}

// stress runs one seed and returns the violations.
func stress(t *testing.T, seed uint64, open func([]lock.Store, ...quorum.Option) *quorum.Store) (found []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := fault.NewWork(seed)
		w.Locks = true
		var servers, nodes []lock.Store
		var networks []*fault.Network
		for i := range uint64(3 + 2*w.Plan.IntN(2)) {
			server := memstore.New()
			network := fault.NewNetwork(server, seed<<8+i)
			network.Improve(w.Plan.Float64()) // most of a quorum works most of the time
			servers, nodes, networks = append(servers, server), append(nodes, network), append(networks, network)
		}
		for range 2 + w.Plan.IntN(3) {
			w.Open(open(nodes))
		}
		w.Run(context.Background())
		for _, network := range networks {
			network.Improve(0)
		}
		found = w.Rest(t.Context(), open(nodes).Describe(), servers...)
		time.Sleep(time.Second) // the remaining reads end
	})
	return found
}
