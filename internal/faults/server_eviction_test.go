package faults_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// A server that makes room by removing locks. Open refuses it; over its own
// client, a service is notified when a lock is gone.
func TestServerEvictsALock(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--maxmemory", "8mb", "--maxmemory-policy", policy)
			_, err := redisstore.Open(t.Context(), server.URL())
			require.ErrorContains(t, err, "maxmemory-policy "+policy+" removes locks")
			here := process(t, overClient(t, server.Addr()), fencing)
			there := process(t, overClient(t, server.Addr()), fencing)
			client := server.Client(t)

			first := acquired(t, here, "user=42")
			renewed := acquired(t, here.With(lock.WithLease(shortLease)), "user=renewed")
			naive := func() bool {
				ok, err := client.SetNX(t.Context(), "naive", "1", 2*time.Hour).Result()
				require.NoError(t, err)
				return ok
			}
			require.True(t, naive())
			writes := fill(t, client, "latch:lock:user=42", "latch:lock:user=renewed", "naive")
			server.Do(t, "CONFIG", "SET", "maxmemory", 0) // or it goes on with the next holder

			requireSecondHolder(t, first, there, "user=42")
			why := isNotified(t, renewed)
			require.True(t, naive(), "the twin: a second holder of a plain SETNX, whose first is not notified")
			t.Logf("evicted after %d writes of 10 kB; the holder that did not ask was notified: %s", writes, why)
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

// fill writes until the server has evicted all of names, and returns how many
// entries that took.
func fill(t *testing.T, client *redis.Client, names ...string) (writes int) {
	t.Helper()
	until(t, func() bool {
		require.NoError(t, writeFiller(t, client, &writes))
		n, err := client.Exists(t.Context(), names...).Result()
		require.NoError(t, err)
		return n == 0
	})
	return writes
}

// writeFiller writes a hundred entries that live for longer than locks.
func writeFiller(t *testing.T, client *redis.Client, writes *int) error {
	t.Helper()
	text := strings.Repeat("x", 10_000)
	_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for range 100 {
			*writes++
			p.Set(t.Context(), "filler:"+strconv.Itoa(*writes), text, 3*time.Hour)
		}
		return nil
	})
	return err
}
