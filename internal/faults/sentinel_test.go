package faults_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

const (
	// silence is the time for which a master has to be silent before it is replaced.
	silence = 300 * time.Millisecond
	// settling is the time after a failover for which a client may still call the old master.
	settling = 3 * time.Second
)

// A master is killed, and three Sentinels put its replica in its place.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	awaitDials(t)
	sentinel := redistest.StartSentinel(t, 2)
	t.Run("what was replicated stays", func(t *testing.T) {
		t.Parallel()
		testSentinelKeeps(t, sentinel.Pairs[0])
	})
	t.Run("what was not has a second holder", func(t *testing.T) {
		t.Parallel()
		testSentinelLoses(t, sentinel.Pairs[1])
	})
}

// testSentinelKeeps: a lease survives the failover, and no other caller gets its
// key. Calls fail in the meantime only, and say so.
func testSentinelKeeps(t *testing.T, pair *redistest.Pair) {
	t.Helper()
	callers := []*caller{
		newCaller(t, "redis-sentinel URL", open(t, pair.URL()), budget),
		newCaller(t, "failover client", redisstore.New(pair.Client(t)), budget),
		newCaller(t, "failover cluster client", redisstore.New(pair.ClusterClient(t)), budget),
	}
	held := acquired(t, process(t, open(t, pair.URL())), "user=held")
	tr := newTraffic(t)
	for i, c := range callers {
		tr.own(c, fmt.Sprintf("user=own-%d", i))
		tr.own(c, fmt.Sprintf("user=own-too-%d", i))
		tr.denied(c, "user=held")
	}
	tr.flow(t, 100)
	pair.Replica.AwaitSync(t, pair.Master)

	pair.FailOverAfter(t, silence)
	killed := time.Now()
	pair.Master.Kill()
	pair.AwaitMaster(t, pair.Replica)
	promoted := time.Since(killed)
	tr.recover(t, killed.Add(promoted), callers)
	tr.end()

	require.NotEmpty(t, tr.failures(), "the master was not missed")
	require.Empty(t, tr.violations(killed, killed.Add(promoted+settling)))
	lives(t, held)
	t.Logf("all Sentinels know the new master %v after the kill", promoted.Round(time.Millisecond))
	require.NoError(t, left(t, pair.Replica, trafficLease+slack))
}

// testSentinelLoses: the replica stops hearing its master just before a lease is
// granted. Its holder and another one believe in their leases on one key; the
// fence distinguishes them. No lease in one Redis can do better: this is
// the twin of one-holder, and has to fail as it does.
func testSentinelLoses(t *testing.T, pair *redistest.Pair) {
	t.Helper()
	here := process(t, open(t, pair.URL()), fencing)
	there := process(t, redisstore.New(pair.Client(t)), fencing)
	known := acquired(t, here, "user=known")
	pair.Replica.AwaitSync(t, pair.Master)
	pair.Forget(t)
	lost := acquired(t, here, "user=lost")
	runs := 0
	run := func(l *lock.Locker) (replayed bool) {
		require.NoError(t, again(t, func() (err error) {
			_, replayed, err = l.Once(t.Context(), "order=lost", nil, func(context.Context) ([]byte, error) { runs++; return nil, nil })
			return err
		}))
		return replayed
	}
	require.False(t, run(here))
	require.True(t, run(here))

	pair.FailOverAfter(t, silence)
	killed := time.Now()
	pair.Master.Kill()
	pair.Replica.Cont()
	pair.AwaitMaster(t, pair.Replica)
	requireSecondHolder(t, lost, there, "user=lost")
	t.Logf("%v after the kill there was a second holder, fenced, and the first was notified", time.Since(killed).Round(time.Millisecond))
	require.False(t, run(there), "a receipt is lost in the same way")
	require.Equal(t, 2, runs)
	refused(t, there, "user=known")
	lives(t, known)
}
