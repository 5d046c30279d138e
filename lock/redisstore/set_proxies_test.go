package redisstore_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// A Cluster behind one address refuses a script on several keys (CROSSSLOT). Sets are claimed in order,
// and the server is asked once: for a plain client of a server that has all slots, as the one address of a
// managed Cluster, and for a cluster client in a wrapper.
func TestSetOfAClusterBehindOneAddress(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		masters int
		client  func(t *testing.T, c *redistest.Cluster, addrs []string) redis.UniversalClient
	}{
		"a plain client": {1, func(t *testing.T, _ *redistest.Cluster, addrs []string) redis.UniversalClient {
			t.Helper()
			client := redis.NewClient(&redis.Options{Addr: addrs[0]})
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			return client
		}},
		"a wrapped cluster client": {3, func(t *testing.T, c *redistest.Cluster, _ []string) redis.UniversalClient {
			t.Helper()
			return struct{ redis.UniversalClient }{c.Client(t)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []*respproxy.Rule
			var addrs []string
			c := redistest.StartCluster(t, tt.masters, func(_ int, addr string) int {
				p := respproxy.Start(t, addr)
				asked = append(asked, p.On(respproxy.Match{Func: onSeveralKeys}, respproxy.Action{}))
				addrs = append(addrs, p.Addr())
				return p.Port()
			})
			s := redisstore.New(tt.client(t, c, addrs))
			l, other := setLocker(t, s), setLocker(t, s)
			keys := fiveKeys(t.Name())
			for range 3 {
				require.NoError(t, l.DoAll(t.Context(), keys, func(ctx context.Context) error {
					require.ErrorIs(t, other.DoAll(ctx, keys[2:], nil), lock.ErrHeld)
					return ctx.Err()
				}))
			}
			require.NoError(t, other.DoAll(t.Context(), keys, func(context.Context) error { return nil }))
			require.Empty(t, c.Keys(t))
			hits := 0
			for _, rule := range asked {
				hits += rule.Hits()
			}
			require.Equal(t, 1, hits)
		})
	}
}

// onSeveralKeys reports whether a command is a script on more than one key.
func onSeveralKeys(args [][]byte) bool {
	return len(args) > 2 && (string(args[0]) == "evalsha" || string(args[0]) == "eval") && string(args[2]) != "1"
}
