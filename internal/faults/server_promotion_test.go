package faults_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// pair is a master and its replica, and two processes that use them.
type pair struct {
	master, replica *redistest.Server
	here, there     lock.Store
	promote         func() // makes the replica the master that both processes use
}

var pairs = map[string]func(t *testing.T) pair{
	// What stands before the servers leads to another one, as a virtual address
	// does, and before it is a master.
	"behind one address": func(t *testing.T) pair {
		t.Helper()
		master := redistest.Start(t)
		replica := redistest.StartReplica(t, master)
		line := cutproxy.Start(t, master.Addr())
		store := overClient(t, line.Addr())
		early := process(t, store)
		return pair{master, replica, open(t, "redis://"+line.Addr()), store, func() {
			line.Break()
			line.To(replica.Addr())
			_, err := early.Acquire(t.Context(), "user=early")
			require.ErrorIs(t, err, lock.ErrUnavailable, "not a master yet")
			replica.Promote(t)
		}}
	},
	"by Sentinel": func(t *testing.T) pair {
		t.Helper()
		p := redistest.StartSentinel(t, 1).Pairs[0]
		return pair{p.Master, p.Replica, open(t, p.URL()), redisstore.New(p.Client(t)), func() {
			p.FailOverAfter(t, 300*time.Millisecond)
			p.AwaitMaster(t, p.Replica)
		}}
	},
}

// A master dies and its replica takes its place, without the last writes. What
// was replicated stays held; what was not has a second holder, and a fence.
func TestServerPromotesAReplica(t *testing.T) {
	t.Parallel()
	for name, start := range pairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			here, there := process(t, p.here, fencing), process(t, p.there, fencing)
			replicated := acquired(t, here, "user=replicated")
			released := acquired(t, here.With(lock.WithBudget(patient)), "user=released") // whose end is to be answered
			p.replica.AwaitSync(t, p.master)

			p.replica.Stop()
			require.EqualValues(t, 1, p.master.Do(t, "CLIENT", "KILL", "TYPE", "replica"), "nothing waits in its socket")
			lost := acquired(t, here, "user=lost")
			renewed := acquired(t, here.With(lock.WithLease(shortLease)), "user=renewed")
			require.NoError(t, released.Release(t.Context()))
			p.master.Kill()
			longest, err := allWithin(map[string]func() error{"without a master": func() error {
				_, err := there.Acquire(t.Context(), "user=lost")
				return unavailable(err)
			}})
			require.NoError(t, err)
			p.replica.Cont()
			p.promote()

			refused(t, there, "user=replicated")
			lives(t, replicated)
			requireSecondHolder(t, lost, there, "user=lost")
			why := isNotified(t, renewed)
			release(t, acquired(t, here, "user=renewed"))
			// A release that was answered is lost as well. The key stays held without a
			// holder, for what is left of the lease and no longer.
			refused(t, here, "user=released")
			refused(t, there, "user=released")
			left, ok := p.replica.Do(t, "PTTL", "latch:lock:user=released").(int64)
			require.True(t, ok)
			require.Positive(t, left)
			require.LessOrEqual(t, left, int64(60_000))
			t.Logf("a claim without a master took %v; the holder that did not ask was notified: %s", longest, why)
		})
	}
}
