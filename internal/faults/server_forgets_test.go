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
	"evicts, allkeys-random": {[]string{"--maxmemory", "8mb", "--maxmemory-policy", "allkeys-random"}, fill},
	"evicts, volatile-lru":   {[]string{"--maxmemory", "8mb", "--maxmemory-policy", "volatile-lru"}, fill},
}

// A lock is gone at the server while its holder works, which breaks mutual exclusion. Fences are
// for this case. The first holder is notified, and a receipt that is gone runs again.
func TestServerForgetsALock(t *testing.T) {
	t.Parallel()
	for name, o := range oblivions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, o.args...)
			here, there := process(t, overClient(t, server.Addr()), fencing), process(t, overClient(t, server.Addr()), fencing)
			client := server.Client(t)
			first := acquired(t, here, "user=42")
			renewed := acquired(t, here.With(lock.WithLease(shortLease)), "user=renewed")
			naive := func() bool {
				ok, err := client.SetNX(t.Context(), "naive", "1", 2*time.Hour).Result()
				require.NoError(t, err)
				return ok
			}
			require.True(t, naive())
			runs := 0
			run := func(l *lock.Locker) (replayed bool) {
				require.NoError(t, again(t, func() (err error) {
					_, replayed, err = l.Once(t.Context(), "order", nil, func(context.Context) ([]byte, error) { runs++; return nil, nil })
					return err
				}))
				return replayed
			}
			require.False(t, run(here))
			entries := append(server.Keys(t, "latch:*"), "naive")
			o.forget(t, server, entries...)
			server.Do(t, "CONFIG", "SET", "maxmemory", 0) // or it goes on with the next holder

			requireSecondHolder(t, first, there, "user=42")
			why := isNotified(t, renewed)
			require.True(t, naive(), "the twin: a second holder of a plain SETNX, whose first is not notified")
			require.False(t, run(there))
			require.Equal(t, 2, runs)
			require.True(t, run(here))
			t.Logf("the holder that did not ask was notified: %s", why)
		})
	}
}

// The policy that locks need: what is held stays, and what is new is refused.
func TestServerThatEvictsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "noeviction")
	here := process(t, open(t, server.URL()), fencing)
	there := process(t, overClient(t, server.Addr()), fencing)
	first := acquired(t, here, "user=42")
	server.Do(t, "CONFIG", "SET", "maxmemory", 1)
	longest, err := allWithin(map[string]func() error{
		"open":   func() error { _, err := here.Acquire(t.Context(), "user=1"); return unavailable(err) },
		"client": func() error { _, err := there.Acquire(t.Context(), "user=2"); return unavailable(err) },
	})
	require.NoError(t, err)
	refused(t, there, "user=42") // holders are known without memory
	lives(t, first)
	server.Do(t, "CONFIG", "SET", "maxmemory", 0)
	for _, l := range []*lock.Locker{here, there} {
		for _, key := range []string{"user=42", "user=1", "user=2"} {
			release(t, acquired(t, l, key))
		}
	}
	t.Logf("claims without memory took %v at most", longest)
}

// fill writes entries that live for longer than locks, until the server has evicted all of names.
func fill(t *testing.T, server *redistest.Server, names ...string) {
	t.Helper()
	client, writes, text := server.Client(t), 0, strings.Repeat("x", 10_000)
	until(t, func() bool {
		_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range 100 {
				writes++
				p.Set(t.Context(), "filler:"+strconv.Itoa(writes), text, 3*time.Hour)
			}
			return nil
		})
		require.NoError(t, err)
		n, err := client.Exists(t.Context(), names...).Result()
		require.NoError(t, err)
		return n == 0
	})
}

// With an append-only file that is written through, a kill changes nothing.
func TestServerKilledWithAppendOnlyFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	newOrdeal(t, server, server.Addr(), lock.ErrUnavailable, func() func() {
		server.Kill()
		return func() { server.Restart(t) }
	}).requirePass(t)
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
		files, err := filepath.Glob(filepath.Join(server.Dir(), "appendonlydir", "*.incr.aof"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		info, err := os.Stat(files[0])
		require.NoError(t, err)
		require.NoError(t, os.Truncate(files[0], info.Size()-10)) // the last command is incomplete
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
