package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
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
	require.PanicsWithValue(t, "redisstore: nil Option", func() { redisstore.New(client, nil) })
}

func TestCloseLeavesTheCallersClientOpen(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client)
	require.NoError(t, s.Close())
	require.NoError(t, client.Ping(t.Context()).Err())
	require.Equal(t, 2*time.Minute, s.Describe().MaxLag)
}

// unknownClient stands for a user's wrapper around a client.
type unknownClient struct{ redis.UniversalClient }

func TestWrappedClients(t *testing.T) {
	t.Parallel()
	s := redisstore.New(unknownClient{redistest.Shared(t).Client(t)})
	take(t, s, keyFor(t), fenced("a"))
	require.NoError(t, s.Check(t.Context()))
	release(t, s, keyFor(t), "a")
}
