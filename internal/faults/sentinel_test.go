package faults_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock/redisstore"
)

const (
	// silence is the time for which a master has to be silent before it is replaced.
	silence = 300 * time.Millisecond
	// settling is the time after a failover for which a client may still call the old master.
	settling = 3 * time.Second
)

// A master is killed, and three Sentinels put its replica in its place. A lease survives the
// failover, and no other caller gets its key. Calls fail in the meantime only, and say so.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	awaitDials(t)
	pair := redistest.StartSentinel(t, 1).Pairs[0]
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
