package redisstore_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/lock/redisstore"
)

func TestNewPanics(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	t.Cleanup(func() { require.NoError(t, ring.Close()) })
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	pipeliner, err := client.AutoPipeline()
	require.NoError(t, err)

	for name, tt := range map[string]struct {
		client redis.UniversalClient
		reason string
	}{
		"nil":           {nil, "client is nil"},
		"typed nil":     {(*redis.Client)(nil), "nil *redis.Client"},
		"nil cluster":   {(*redis.ClusterClient)(nil), "nil *redis.ClusterClient"},
		"ring":          {ring, "two holders"},
		"autopipeliner": {pipeliner, "after their context has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				text, _ := recover().(string)
				require.True(t, strings.HasPrefix(text, "redisstore.New: "), text)
				require.Contains(t, text, tt.reason)
			}()
			redisstore.New(tt.client)
		})
	}
}

func TestCloseLeavesTheCallersClientOpen(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client)
	require.NoError(t, s.Close())
	require.NoError(t, client.Ping(t.Context()).Err())
	require.Equal(t, 2*time.Minute, s.MaxLag())
}

// Not parallel: there is one default logger.
func TestNewSaysOnceWhatOpenWouldSetDifferently(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })

	logged := func(client redis.UniversalClient) string {
		log.Reset()
		redisstore.New(client)
		require.NoError(t, client.Close())
		require.LessOrEqual(t, strings.Count(log.String(), "\n"), 1)
		return log.String()
	}
	all := []string{"DialerRetries=1", "DialTimeout=1s", "PoolTimeout=1s"}
	for _, client := range []redis.UniversalClient{
		redis.NewClient(&redis.Options{}),
		redis.NewClusterClient(&redis.ClusterOptions{}),
	} {
		text := logged(client)
		require.Contains(t, text, "level=WARN")
		for _, want := range all {
			require.Contains(t, text, want)
		}
	}
	require.Empty(t, logged(redis.NewClient(&redis.Options{DialerRetries: 1, DialTimeout: time.Second, PoolTimeout: time.Second})))
	require.NotContains(t, logged(redis.NewClient(&redis.Options{DialTimeout: time.Second})), "DialTimeout")
	require.Contains(t, logged(redis.NewClient(&redis.Options{DialTimeout: -1})), "DialTimeout=1s")
	require.Empty(t, logged(unknownClient{redis.NewClient(&redis.Options{})}))
}

// unknownClient stands for somebody's wrapper around a client.
type unknownClient struct{ redis.UniversalClient }

func TestWrappedClients(t *testing.T) {
	t.Parallel()
	s := redisstore.New(unknownClient{redistest.Shared(t).Client(t)})
	take(t, s, keyFor(t), fenced("a"))
	require.NoError(t, s.Check(t.Context()))
	release(t, s, keyFor(t), "a")
}
