package redisstore_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

func TestNewPanics(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	t.Cleanup(func() { require.NoError(t, ring.Close()) })
	client := clientOf(t, &redis.Options{Addr: "127.0.0.1:1"})
	pipeliner := must.Get(client.AutoPipeline())(t)

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
				require.Regexp(t, "^redisstore.New: .*"+regexp.QuoteMeta(tt.reason), recover())
			}()
			redisstore.New(tt.client)
		})
	}
	require.PanicsWithValue(t, "redisstore: nil Option", func() { redisstore.New(client, nil) })
}

func TestCloseLeavesTheCallersClientOpen(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t, redistest.Shared(t))
	s := redisstore.New(client)
	require.NoError(t, s.Close())
	require.NoError(t, client.Ping(t.Context()).Err())
	require.Equal(t, 2*time.Minute, s.Describe().MaxLag)
}

// unknownClient stands for a user's wrapper around a client.
type unknownClient struct{ redis.UniversalClient }

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
			exists := must.Get(client.Exists(t.Context(), entryName(key)).Result())(t)
			require.Zero(t, exists)
		})
	}
}

// Stores with different prefixes are different stores, also if one prefix begins like the other, or
// would be a pattern for it.
func TestPrefixesDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	prefixes := []string{"latch:", "shop:", "shop:eu:", "shop", "we?rd[*]\\^:", "weird*:"}
	for _, prefix := range prefixes {
		s := open(t, srv.URL(), redisstore.WithPrefix(prefix), redisstore.WithNotifications())
		for _, key := range []string{"user=42", "once:k"} {
			take(t, s, key, claim("of "+prefix))
		}
		must.Yes(t)(s.Settle(t.Context(), "once:k", lock.Claim{Token: "of " + prefix}, []byte(prefix), time.Hour))
	}
	for _, prefix := range prefixes {
		s := open(t, srv.URL(), redisstore.WithPrefix(prefix), redisstore.WithNotifications())
		all := listed(t, s)
		require.Len(t, all, 2)
		require.Equal(t, "of "+prefix, all["user=42"].Token)
		require.Equal(t, []byte(prefix), all["once:k"].Receipt)
		require.Len(t, pagedAll(t, s), 2)
		release(t, s, "user=42", "of "+prefix)
		for _, key := range []string{"user=42", "once:k"} {
			must.No(t)(s.Forget(t.Context(), key, "of another"))
		}
	}
	require.Len(t, srv.Keys(t), len(prefixes), "each has released its own")
}
