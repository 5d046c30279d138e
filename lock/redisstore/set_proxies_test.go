package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

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

// shared returns the address of a twemproxy over two servers. Commands that twemproxy does not know end a
// connection. As other proxies do, and as go-redis needs it of HELLO, a second proxy answers them with an
// error.
func shared(t *testing.T) (addr string) {
	t.Helper()
	p := respproxy.Start(t, redistest.StartTwemproxy(t, redistest.Start(t), redistest.Start(t)))
	p.On(respproxy.Match{Name: "hello|client|info|scan|delifeq|delex"}, respproxy.ReplyError("ERR unsupported command"))
	return p.Addr()
}

// A proxy sends a command to the server of its first key. A set that is claimed at once then has a key that
// another set has, too. Claimed in order, it has not.
func TestSetBehindAProxyThatSharesKeys(t *testing.T) {
	t.Parallel()
	addr := shared(t)
	for name, tt := range map[string]struct {
		opts []redisstore.Option
		safe bool
	}{
		"claimed at once":  {nil, false},
		"claimed in order": {[]redisstore.Option{redisstore.WithoutPluralClaims()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			s := redisstore.New(client, tt.opts...)
			l, other := setLocker(t, s), setLocker(t, s)
			keys := fiveKeys(name)
			set, err := l.AcquireAll(t.Context(), keys)
			require.NoError(t, err)
			twice := 0 // keys with two holders
			for _, key := range keys {
				if err := other.Do(t.Context(), key, func(context.Context) error { return nil }); err == nil {
					twice++
				} else {
					require.ErrorIs(t, err, lock.ErrHeld)
				}
			}
			t.Logf("%d keys of %d had two holders", twice, len(keys))
			require.Equal(t, tt.safe, twice == 0)
			if err = set.Release(t.Context()); !tt.safe {
				require.ErrorIs(t, err, lock.ErrLost, "the releases do not find the entries")
				return
			}
			require.NoError(t, err)
			_, err = s.ClaimSet(t.Context(), keys, make([]lock.Claim, len(keys)))
			require.ErrorIs(t, err, errors.ErrUnsupported)
		})
	}
}

func TestCheckFindsAProxyThatSharesKeys(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: shared(t)})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	s, inOrder := redisstore.New(client), redisstore.New(client, redisstore.WithoutPluralClaims())
	require.Eventually(t, func() bool { // eight random keys may be on one server
		err := inOrder.Check(timeout(t, patience))
		require.ErrorContains(t, err, "unsupported command") // INFO and SCAN
		require.NotContains(t, err.Error(), "SETS")
		return strings.Contains(s.Check(timeout(t, patience)).Error(), "redisstore: SETS: a script on several keys")
	}, patience, time.Millisecond)
}
