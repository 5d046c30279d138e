package redisstore_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// A closed store sends nothing, also if the client is open, and if the store had no connection of its own.
func TestCallsAfterClose(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for name, client := range map[string]redis.UniversalClient{
		"plain": redis.NewClient(&redis.Options{Addr: srv.Addr()}),
		"client that sends itself": redis.NewClient(&redis.Options{
			Addr:      srv.Addr(),
			OnConnect: func(context.Context, *redis.Conn) error { return nil },
		}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: srv.Addr()}}}}, nil
		}}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			s, key := redisstore.New(client), keyFor(t)
			require.NoError(t, s.Close())
			_, err := s.Claim(t.Context(), key, claim("a"))
			requireNotApplied(t, err, "closed")
			exists, err := client.Exists(t.Context(), entryName(key)).Result()
			require.NoError(t, err)
			require.Zero(t, exists)
		})
	}
}
