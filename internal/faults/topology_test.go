package faults_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// Three masters and three replicas, whose slots are moved and one of which is
// killed while two processes work, one with the client that Open makes and one
// with a client as its users make it.
func TestCluster(t *testing.T) {
	t.Parallel()
	awaitDials(t)
	cluster := redistest.StartCluster(t, 3, nil)
	cluster.AddReplicas(t)
	t.Run("a master steps down", func(t *testing.T) { testMasterStepsDown(t, cluster) })
	t.Run("a slot moves", func(t *testing.T) { testSlotMoves(t, cluster) })
	t.Run("a slot moves without its keys", func(t *testing.T) { testSlotMovesEmpty(t, cluster) })
	t.Run("a master dies", func(t *testing.T) { testMasterDies(t, cluster) })
}

// clusterCallers are the two processes. All their keys begin with prefix.
func clusterCallers(t *testing.T, cluster *redistest.Cluster, prefix string, budget time.Duration) []*caller {
	t.Helper()
	opened := must.Get(redisstore.Open(t.Context(), cluster.URL(), redisstore.WithPrefix(prefix)))(t)
	t.Cleanup(func() { _ = opened.Close() })
	return []*caller{
		newCaller(t, "redis-cluster URL", opened, budget),
		newCaller(t, "cluster client", redisstore.New(redistest.ClusterClient(t, cluster), redisstore.WithPrefix(prefix)), budget),
	}
}

// testMasterStepsDown: a master and its replica change places, as an operator
// has them do for maintenance. Unlike in a failover the replica has everything
// by then.
func testMasterStepsDown(t *testing.T, cluster *redistest.Cluster) {
	t.Helper()
	prefix := "{maintained}:"
	for cluster.Owner(t, prefix) == cluster.Owner(t, entryOfHeld) { // that one is to die later
		prefix = "{x" + prefix[1:]
	}
	master := cluster.Owner(t, prefix)
	replica := cluster.Replicas[slices.Index(cluster.Nodes, master)]
	noCallNotices(t, cluster, prefix, func(work func()) {
		work()
		replica.Do(t, "CLUSTER", "FAILOVER") // before slots move: a replica that has not learned of that yet gets no votes
		cluster.AwaitOwner(t, prefix, replica)
		work()
	})
}

// testSlotMoves: all keys are in one slot, which goes around the cluster the way
// an operator would move it.
func testSlotMoves(t *testing.T, cluster *redistest.Cluster) {
	t.Helper()
	const prefix, moves = "{moving}:", 9
	slot := cluster.Slot(t, prefix)
	keys := 0
	began := time.Now()
	noCallNotices(t, cluster, prefix, func(work func()) {
		for range moves {
			from, to := nextOwner(t, cluster, prefix)
			keys += moveSlot(t, slot, from, to, work)
		}
	})
	asks, moved := errorReplies(t, cluster, "ASK"), errorReplies(t, cluster, "MOVED")
	t.Logf("%d moves with %d keys took %v; the servers said ASK %d times and MOVED %d times",
		moves, keys, time.Since(began).Round(time.Millisecond), asks, moved)
	require.Positive(t, keys)
	require.Positive(t, asks)
	require.Positive(t, moved)
}

// noCallNotices requires that no call fails, and that no promise is broken, when
// the cluster changes while its users work on one slot.
func noCallNotices(t *testing.T, cluster *redistest.Cluster, prefix string, change func(work func())) {
	t.Helper()
	callers := clusterCallers(t, cluster, prefix, ampleBudget)
	held := acquired(t, callers[0].locker.With(lock.WithLease(time.Minute)), "user=held")
	tr := newTraffic(t)
	for i, c := range callers {
		tr.own(c, fmt.Sprintf("user=own-%d", i))
		tr.own(c, fmt.Sprintf("user=own-too-%d", i))
		tr.denied(c, "user=held")
	}
	tr.each(func() {
		sent := time.Now()
		tr.book(callers[0], "user=held", sent, held.Extend(context.Background()))
	})
	change(func() { tr.flow(t, 60) })
	tr.end()

	require.Empty(t, tr.failures())
	release(t, held)
	require.NoError(t, left(t, cluster, prefix+"lock:user=own*", trafficLease+slack))
}

// nextOwner returns the master of key's slot, and the one to move it to.
func nextOwner(t *testing.T, cluster *redistest.Cluster, key string) (from, to *redistest.Server) {
	t.Helper()
	from = cluster.Owner(t, key)
	masters := cluster.Masters(t)
	return from, masters[(slices.Index(masters, from)+1)%len(masters)]
}

// moveSlot moves a slot as redis-cli does, and waits for work to go on between
// the steps. It returns how many keys it has moved. That a key would be at both
// nodes is an error of MIGRATE.
func moveSlot(t *testing.T, slot int, from, to *redistest.Server, work func()) (keys int) {
	t.Helper()
	fromID, toID := from.Do(t, "CLUSTER", "MYID"), to.Do(t, "CLUSTER", "MYID")
	to.Do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	from.Do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	work()
	for {
		names, ok := from.Do(t, "CLUSTER", "GETKEYSINSLOT", slot, 10).([]any)
		require.True(t, ok)
		if len(names) == 0 {
			break
		}
		from.Do(t, append([]any{"MIGRATE", "127.0.0.1", to.Port(), "", 0, 20_000, "KEYS"}, names...)...)
		keys += len(names)
	}
	work()
	to.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	from.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	work()
	return keys
}

// testSlotMovesEmpty is the twin: an operator gives a slot away before its keys
// have been moved, and the cluster deletes them. That makes a second holder.
func testSlotMovesEmpty(t *testing.T, cluster *redistest.Cluster) {
	t.Helper()
	const prefix = "{given away}:"
	slot := cluster.Slot(t, prefix)
	callers := clusterCallers(t, cluster, prefix, ampleBudget)
	lost := acquired(t, callers[0].locker.With(lock.WithLease(time.Minute), fencing), "user=lost")
	from, to := nextOwner(t, cluster, prefix)
	to.Do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.Do(t, "CLUSTER", "MYID"))
	to.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", to.Do(t, "CLUSTER", "MYID"))
	cluster.AwaitOwner(t, prefix, to)
	tr := newTraffic(t)
	tr.denied(callers[1], "user=lost")
	until(t, func() bool { return len(tr.failures()) > 0 })
	tr.end()
	require.Contains(t, tr.failures()[0], "one-holder", "what would be found if a move did that")
	requireSecondHolder(t, lost, callers[1].locker.With(lock.WithLease(time.Minute), fencing), "user=lost")
}

// testMasterDies: a master is killed, and the cluster puts its replica in its
// place.
func testMasterDies(t *testing.T, cluster *redistest.Cluster) {
	t.Helper()
	callers := clusterCallers(t, cluster, "latch:", budget)
	held := acquired(t, callers[0].locker.With(lock.WithLease(time.Minute)), "user=held")
	master := cluster.Owner(t, entryOfHeld)
	replica := cluster.Replicas[slices.Index(cluster.Nodes, master)]
	tr := newTraffic(t)
	for i, c := range callers {
		for _, node := range cluster.Masters(t) {
			tr.own(c, keyAt(t, cluster, node, fmt.Sprintf("user=own-%d", i)))
		}
		tr.denied(c, "user=held")
	}
	tr.flow(t, 200)
	replica.AwaitSync(t, master)

	cluster.FailOverAfter(t, time.Second)
	tr.survives(t, callers, held, master, func() { cluster.AwaitOwner(t, entryOfHeld, replica) })
	require.NoError(t, left(t, cluster, "latch:lock:user=own*", trafficLease+slack))
}

// entryOfHeld is the name of the entry of a lease on user=held.
const entryOfHeld = "latch:lock:user=held"

// keyAt is a key that begins as said and whose entry is at a node.
func keyAt(t *testing.T, cluster *redistest.Cluster, node *redistest.Server, key string) string {
	t.Helper()
	for cluster.Owner(t, "latch:lock:"+key) != node {
		key += "x"
	}
	return key
}

// errorReplies returns the number of error replies of the nodes with this code.
func errorReplies(t *testing.T, cluster *redistest.Cluster, code string) int {
	t.Helper()
	sum := 0
	for _, s := range cluster.Masters(t) {
		info := must.Get(redistest.Client(t, s).InfoMap(t.Context(), "errorstats").Result())(t)
		n := 0
		_, _ = fmt.Sscanf(info["Errorstats"]["errorstat_"+code], "count=%d", &n)
		sum += n
	}
	return sum
}

// A master is killed, and three Sentinels put its replica in its place. A lease survives the
// failover, and no other caller gets its key. Calls fail in the meantime only, and say so.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	awaitDials(t)
	pair := redistest.StartSentinel(t, 1).Pairs[0]
	callers := []*caller{
		newCaller(t, "redis-sentinel URL", open(t, pair.URL()), budget),
		newCaller(t, "failover client", redisstore.New(redistest.FailoverClient(t, pair)), budget),
		newCaller(t, "failover cluster client", redisstore.New(redistest.FailoverClusterClient(t, pair)), budget),
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

	pair.FailOverAfter(t, 300*time.Millisecond)
	tr.survives(t, callers, held, pair.Master, func() { pair.AwaitMaster(t, pair.Replica) })
	require.NoError(t, left(t, pair.Replica, "latch:*", trafficLease+slack))
}
