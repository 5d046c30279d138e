package quorum_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
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

// subsets returns all strings of n letters.
func subsets(n int, letters string) []string {
	all := []string{""}
	for range n {
		var longer []string
		for _, s := range all {
			for _, l := range letters {
				longer = append(longer, s+string(l))
			}
		}
		all = longer
	}
	return all
}

func everySubset(t *testing.T, check func(t *testing.T, f fleet, conditions string, majority bool)) {
	t.Helper()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for _, conditions := range subsets(n, "udsl") {
				synctest.Test(t, func(t *testing.T) {
					defer func() {
						if t.Failed() {
							t.Logf("with the nodes %s", conditions)
						}
					}()
					f := newFleet(n)
					f.be(conditions)
					check(t, f, conditions, strings.Count(conditions, string(up)) > n/2)
				})
			}
		})
	}
}

// Acquired exactly when a majority answered in time, and as fast as the majority. Otherwise no node keeps an entry.
func TestEverySubset(t *testing.T) {
	t.Parallel()
	everySubset(t, func(t *testing.T, f fleet, conditions string, majority bool) {
		t.Helper()
		q := f.quorum()
		began := time.Now()
		e, err := q.Claim(t.Context(), key, lock.Claim{Token: "ours", Lease: longLease})
		took := time.Since(began)
		if majority {
			require.NoError(t, err)
			require.Equal(t, lock.Held, e.State)
			require.Equal(t, "ours", e.Token)
			require.Equal(t, roundTrip, took, "a slow minority costs nothing")
			time.Sleep(time.Second)
			f.heal()
			must.Yes(t)(q.Release(t.Context(), key, lock.Claim{Token: "ours"}))
		} else {
			require.Error(t, err)
			require.Equal(t, !strings.ContainsAny(conditions, "sl"), isNotApplied(err), "%v", err)
			require.LessOrEqual(t, took, 2*nodeTimeout)
		}
		time.Sleep(time.Second)
		require.NotContains(t, f.states(t), "ours")
	})
}

// The same through a Locker, which claims again and cleans up. The nodes stay as they are for a while after that.
func TestEverySubsetUnderALocker(t *testing.T) {
	t.Parallel()
	everySubset(t, func(t *testing.T, f fleet, conditions string, majority bool) {
		t.Helper()
		l := lock.New(f.quorum(), lock.WithLogger(quiet), lock.WithLease(longLease), lock.WithMaxHold(2*longLease),
			lock.WithBudget(budget))
		began := time.Now()
		e, err := l.Acquire(t.Context(), key)
		took := time.Since(began)
		if majority {
			require.NoError(t, err)
			require.Equal(t, roundTrip, took)
			require.NoError(t, e.Release(t.Context()))
		} else {
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.Equal(t, strings.ContainsAny(conditions, "sl"), isUnknown(err), "%v", err)
			require.LessOrEqual(t, took, budget)
		}
		time.Sleep(time.Second)
		f.heal()
		time.Sleep(30 * time.Second)
		require.NotContains(t, f.states(t), "held")
		require.NoError(t, l.Do(t.Context(), key, func(context.Context) error { return nil }))
		require.NoError(t, l.Close(t.Context()))
	})
}

func isNotApplied(err error) bool { return errors.Is(err, lock.ErrNotApplied) }
func isUnknown(err error) bool    { return errors.Is(err, lock.ErrUnknown) }
