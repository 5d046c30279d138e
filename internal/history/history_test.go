package history_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/redistest"
)

// atOnce is how many histories are made at the same time: mostly they wait.
const atOnce = 4

func TestHistories(t *testing.T) {
	t.Logf("-seed %d -histories %d", *seedFlag, *historiesFlag)
	c := newCounts()
	near := family{}.open(t, redistest.Shared(t).Addr())
	next := make(chan int)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := range next {
				f := families[i%len(families)]
				f.near = near
				t.Run(fmt.Sprintf("%03d %s", i, f.name), func(t *testing.T) {
					byStore, byLease := f.run(t, *seedFlag+uint64(i), c)
					require.NoError(t, byStore)
					require.NoError(t, byLease)
				})
			}
		})
	}
	for i := range *historiesFlag {
		next <- i
	}
	close(next)
	all.Wait()
	c.log(t)
	if *historiesFlag >= 100 && !t.Failed() {
		requireEventful(t, c)
	}
}

// requireEventful: that nothing is wrong says little where nothing happened.
func requireEventful(t *testing.T, c *counts) {
	t.Helper()
	for _, f := range faults {
		require.Positive(t, c.get("faults", f.name), f.name)
	}
	for v := range opFound {
		require.Positive(t, c.get("calls", v.String()), v)
	}
	for a := range actLost {
		require.Positive(t, c.get("leases", a.String()), a)
	}
	for group, names := range map[string][]string{
		"outcomes":          {"unknown", "not applied"},
		"events":            {"takeovers", "claims granted to a repetition"},
		"events of lockers": {"recovered", "unknown", "reaped"},
	} {
		for _, name := range names {
			require.Positive(t, c.get(group, name), name)
		}
	}
	require.Zero(t, c.get("leases", actLost.String()), "leases that outlast a history")
}
