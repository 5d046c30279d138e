package quorum_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/quorum"
)

// Random work of several processes over one quorum, each node of which is behind
// a network of its own that loses, delays and refuses at random.
func TestQuorumStress(t *testing.T) {
	t.Parallel()
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		require.Empty(t, quorumStress(t, seed, quorum.New), "seed %d", seed)
	}
}

// quorumStress runs one seed and returns what was wrong.
func quorumStress(t *testing.T, seed uint64, open func([]lock.Store, ...quorum.Option) lock.Store) (found []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		plan := rand.New(rand.NewPCG(seed, 1))
		var networks []*network
		for i := range uint64(3 + 2*plan.IntN(2)) {
			networks = append(networks, newNetwork(memstore.New(), seed<<8+i))
		}
		nodes := make([]lock.Store, len(networks))
		for i, n := range networks {
			nodes[i] = n
		}
		st := &stressed{
			plan:    plan,
			holders: make(map[string]context.Context),
			effects: make(map[string]int),
			locks:   true,
		}
		for range 2 + plan.IntN(3) {
			opts := []lock.Option{
				lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithMaxHold(10 * time.Second),
				lock.WithKeep(keep), lock.WithDetached(),
			}
			if plan.IntN(2) == 0 {
				opts = append(opts, lock.WithWait(st.between(time.Millisecond, 3*time.Second)))
			}
			process := open(nodes)
			st.network = newNetwork(process, seed)
			st.network.calm() // the faults are behind the quorum
			st.lockers = append(st.lockers, lock.New(process, opts...))
		}
		// Most of a quorum works most of the time.
		for _, n := range networks {
			n.rate *= plan.Float64()
		}
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(st.job(i))
		}
		if plan.IntN(3) == 0 {
			all.Go(st.closeEarly())
		}
		all.Wait()
		for _, n := range networks {
			n.calm()
		}
		time.Sleep(30*time.Second + st.network.MaxLag())
		for i, n := range networks {
			for _, key := range []string{"k=0", "k=1"} {
				if e, err := n.store.Get(t.Context(), key); err != nil || e.State != lock.Free {
					st.bad("at rest, %s is %v on node %d, %v", key, e.State, i, err)
				}
			}
		}
		st.atRest(t)
		time.Sleep(time.Second) // what is left of reading
		found = st.found
	})
	return found
}

// The twin: a quorum for which a minority is enough.
func TestQuorumStressCatchesMinority(t *testing.T) {
	for seed := range uint64(200) {
		if found := quorumStress(t, seed, lock.WithoutMajority); len(found) > 0 {
			t.Logf("seed %d: %s", seed, found[0])
			return
		}
	}
	t.Error("nothing was found in 200 seeds")
}
