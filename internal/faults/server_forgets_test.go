package faults_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
)

// oblivions are servers that forget what they have confirmed.
var oblivions = map[string]struct {
	args   []string
	forget func(t *testing.T, server *redistest.Server, entries ...string)
}{
	"killed without persistence": {nil, func(t *testing.T, server *redistest.Server, _ ...string) {
		t.Helper()
		server.Kill()
		server.Restart(t)
	}},
	"evicts": {[]string{"--maxmemory", "8mb", "--maxmemory-policy", "allkeys-random"}, fill},
}

// A lock is gone at the server while its holder works, which breaks mutual exclusion. Fences are
// for this case. The first holder is notified, a receipt that is gone runs again, and work under way leaves its own.
func TestServerForgetsALock(t *testing.T) {
	t.Parallel()
	for name, o := range oblivions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, o.args...)
			here, there := process(t, overClient(t, server.Addr()), fencing), process(t, overClient(t, server.Addr()), fencing)
			client := redistest.Client(t, server)
			first := acquired(t, here, "user=42")
			renewed := acquired(t, here.With(lock.WithLease(shortLease)), "user=renewed")
			naive := func() bool {
				return must.Get(client.SetNX(t.Context(), "naive", "1", 2*time.Hour).Result())(t)
			}
			require.True(t, naive())
			runs := 0
			run := func(l *lock.Locker, order string, meanwhile func()) (replayed bool) {
				require.NoError(t, again(t, func() (err error) {
					_, replayed, err = l.Once(t.Context(), order, nil, func(context.Context) ([]byte, error) { runs++; meanwhile(); return nil, nil })
					return err
				}))
				return replayed
			}
			require.False(t, run(here, "done", func() {}))
			require.False(t, run(here, "under way", func() {
				o.forget(t, server, append(server.Keys(t, "latch:*"), "naive")...)
				server.Do(t, "CONFIG", "SET", "maxmemory", 0) // or it goes on with the next holder
			}))

			requireSecondHolder(t, first, there, "user=42")
			isNotified(t, renewed)
			require.True(t, naive(), "the twin: a second holder of a plain SETNX, whose first is not notified")
			require.False(t, run(there, "done", func() {}))
			require.True(t, run(here, "done", nil))
			require.True(t, run(there, "under way", nil))
			require.Equal(t, 3, runs)
		})
	}
}

// fill writes entries that live for longer than locks, until the server has evicted all of names.
func fill(t *testing.T, server *redistest.Server, names ...string) {
	t.Helper()
	client, writes, text := redistest.Client(t, server), 0, strings.Repeat("x", 10_000)
	until(t, func() bool {
		_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range 100 {
				writes++
				p.Set(t.Context(), "filler:"+strconv.Itoa(writes), text, 3*time.Hour)
			}
			return nil
		})
		require.NoError(t, err)
		return must.Get(client.Exists(t.Context(), names...).Result())(t) == 0
	})
}

// The power fails before the last writes are on disk. The earlier writes are left.
func TestServerLosesTheTailOfItsFile(t *testing.T) {
	t.Parallel()
	for range 5 { // a busy machine may notice the loss before there is a second holder
		server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always") // so that the test decides what is lost
		here := process(t, open(t, server.URL()), fencing)
		there := process(t, overClient(t, server.Addr()), fencing)
		kept, lost := acquired(t, here, "user=kept"), claimed(t, here, "user=lost") // the last command
		server.Kill()
		files := must.Get(filepath.Glob(filepath.Join(server.Dir(), "appendonlydir", "*.incr.aof")))(t)
		require.Len(t, files, 1)
		require.NoError(t, os.Truncate(files[0], must.Get(os.Stat(files[0]))(t).Size()-10)) // the last command is incomplete
		server.Restart(t)

		refused(t, there, "user=kept")
		lives(t, kept)
		if lost.Context().Err() == nil {
			requireSecondHolder(t, lost, there, "user=lost")
			return
		}
	}
	t.Error("the loss was noticed each time")
}

// A master dies and its replica takes its place, without the last writes: what stands before the
// servers leads to another one, as a virtual address does, and before it is a master. What was
// replicated stays held; what was not has a second holder, and a fence.
func TestServerPromotesAReplica(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	line := cutproxy.Start(t, master.Addr())
	store := overClient(t, line.Addr())
	early := process(t, store)
	here, there := process(t, open(t, "redis://"+line.Addr()), fencing), process(t, store, fencing)
	replicated := acquired(t, here, "user=replicated")
	released := acquired(t, here.With(lock.WithBudget(patient)), "user=released") // whose end is to be answered
	replica.AwaitSync(t, master)

	replica.Stop()
	require.EqualValues(t, 1, master.Do(t, "CLIENT", "KILL", "TYPE", "replica"), "nothing waits in its socket")
	lost := acquired(t, here, "user=lost")
	renewed := acquired(t, here.With(lock.WithLease(shortLease)), "user=renewed")
	require.NoError(t, released.Release(t.Context()))
	master.Kill()
	unserved := func(l *lock.Locker, key string) {
		require.NoError(t, inTime(func() {
			_, err := l.Acquire(t.Context(), key)
			require.ErrorIs(t, err, lock.ErrUnavailable)
		}))
	}
	unserved(there, "user=lost")
	replica.Cont()
	line.Break()
	line.To(replica.Addr())
	unserved(early, "user=early") // not a master yet
	replica.Promote(t)

	refused(t, there, "user=replicated")
	lives(t, replicated)
	requireSecondHolder(t, lost, there, "user=lost")
	isNotified(t, renewed)
	release(t, acquired(t, here, "user=renewed"))
	// A release that was answered is lost as well. The key stays held without a
	// holder, for what is left of the lease and no longer.
	refused(t, here, "user=released")
	refused(t, there, "user=released")
	left, ok := replica.Do(t, "PTTL", "latch:lock:user=released").(int64)
	require.True(t, ok)
	require.Positive(t, left)
	require.LessOrEqual(t, left, int64(60_000))
}

// requireSecondHolder lets there take what here has lost at the server without knowing it
// yet, and checks what that leads to: two that believe in their leases, of
// which the fence stops the first, which is notified at the next reply of the server,
// and leaves its successor alone.
func requireSecondHolder(t *testing.T, first *lock.Lease, there *lock.Locker, key string) {
	t.Helper()
	before, fenced := first.Fence()
	require.True(t, fenced)
	successor := acquired(t, there, key)
	require.NoError(t, first.Context().Err(), "the first holder believes in its lease as well")
	after, fenced := successor.Fence()
	require.True(t, fenced)
	require.Greater(t, after, before, "a resource that checks fences refuses the late write of the first")

	require.ErrorIs(t, again(t, func() error { return first.Extend(t.Context()) }), lock.ErrLost)
	require.ErrorIs(t, context.Cause(first.Context()), lock.ErrLost)
	require.ErrorContains(t, context.Cause(first.Context()), "took or removed")
	require.ErrorIs(t, first.Release(t.Context()), lock.ErrLost)
	lives(t, successor)
}

// isNotified waits for the end of a lease whose entry is gone.
func isNotified(t *testing.T, lease *lock.Lease) {
	t.Helper()
	until(t, func() bool { return lease.Context().Err() != nil })
	require.ErrorIs(t, context.Cause(lease.Context()), lock.ErrLost)
	require.ErrorIs(t, lease.Release(t.Context()), lock.ErrLost)
}
