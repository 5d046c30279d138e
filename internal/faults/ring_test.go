package faults_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// Why redisstore.New takes no Ring. Two processes lock through a Ring of two
// shards, both of which are well the whole time. The PINGs that one process's
// Ring sends to one of them fail, and nothing else does: its claims still reach
// that shard, and are refused as they should be. Then its Ring gives
// the shard up, sends its keys to the other, and both processes hold them.
func TestRingMakesASecondHolder(t *testing.T) {
	t.Parallel()
	left, right := redistest.Start(t), redistest.Start(t)
	proxy := respproxy.Start(t, left.Addr())
	here := ring(t, left.Addr(), right.Addr())
	there := ring(t, proxy.Addr(), right.Addr())
	key := keyOfLeft(t, here, left)

	require.True(t, take(t, here, key, "here"))
	require.False(t, take(t, there, key, "there"))
	failing := proxy.On(respproxy.Match{Name: "ping"}, respproxy.ReplyError("ERR not heard"))
	began := time.Now()
	refusals := 0
	until(t, func() bool {
		if take(t, there, key, "there") {
			return true
		}
		refusals++
		return false
	})
	t.Logf("refused %d times, and granted a second time %v after the first heartbeat was lost", refusals, time.Since(began).Round(time.Millisecond))
	require.GreaterOrEqual(t, failing.Hits(), 3)
	require.Equal(t, "here", left.Do(t, "GET", key), "both hold it")
	require.Equal(t, "there", right.Do(t, "GET", key))

	defer func() { require.Contains(t, recover(), "two holders", "so New refuses it") }()
	redisstore.New(here)
}

// ring shards over two servers, which all rings call by the same names.
func ring(t *testing.T, left, right string) *redis.Ring {
	t.Helper()
	r := redis.NewRing(&redis.RingOptions{
		Addrs:              map[string]string{"left": left, "right": right},
		HeartbeatFrequency: 100 * time.Millisecond, // a fifth of what it is by default
	})
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// keyOfLeft is a key whose shard is left.
func keyOfLeft(t *testing.T, r *redis.Ring, left *redistest.Server) string {
	t.Helper()
	for key := "lock"; ; key += "'" {
		require.NoError(t, r.Set(t.Context(), key, "", 0).Err())
		found := len(left.Keys(t, key)) == 1
		require.NoError(t, r.Del(t.Context(), key).Err())
		if found {
			return key
		}
	}
}

// take is a lock as it is often written.
func take(t *testing.T, r *redis.Ring, key, holder string) bool {
	t.Helper()
	err := r.SetArgs(context.WithoutCancel(t.Context()), key, holder, redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err()
	if errors.Is(err, redis.Nil) {
		return false
	}
	require.NoError(t, err)
	return true
}
