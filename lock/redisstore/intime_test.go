package redisstore_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/internal/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// A store that says that its calls return in time has them do so, whatever is in
// the way and whatever the client's options say. Those of another kind say
// nothing.
func TestCallsReturnInTime(t *testing.T) {
	t.Parallel()
	const obstacle, wait, slack = 30 * time.Second, 100 * time.Millisecond, 10 * time.Second
	patiently := func(addr string) *redis.Options {
		return &redis.Options{
			Addr: addr, DialTimeout: obstacle, ReadTimeout: obstacle, WriteTimeout: obstacle, PoolTimeout: obstacle,
			PoolSize: 1, PipelinePoolSize: -1, MaxRetries: 3,
		}
	}
	proxied := func(t *testing.T) *respproxy.Proxy { t.Helper(); return respproxy.Start(t, redistest.Shared(t).Addr()) }
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"silence": func(t *testing.T) redis.UniversalClient {
			p := proxied(t)
			c := redis.NewClient(patiently(p.Addr()))
			require.NoError(t, c.Ping(t.Context()).Err())
			p.Freeze()
			return c
		},
		"handshake": func(t *testing.T) redis.UniversalClient {
			p := proxied(t)
			p.On(respproxy.Match{Name: "hello"}, respproxy.Drop(respproxy.Hang))
			return redis.NewClient(patiently(p.Addr()))
		},
		"dial": func(t *testing.T) redis.UniversalClient {
			o, end := patiently("anywhere"), make(chan struct{})
			o.Dialer = func(context.Context, string, string) (net.Conn, error) { <-end; return nil, net.ErrClosed }
			t.Cleanup(func() { close(end) })
			return redis.NewClient(o)
		},
		"pool": func(t *testing.T) redis.UniversalClient {
			c := redis.NewClient(patiently(redistest.Shared(t).Addr()))
			conn := c.Conn()
			require.NoError(t, conn.Ping(t.Context()).Err())
			t.Cleanup(func() { require.NoError(t, conn.Close()) })
			return c
		},
	} {
		for kind, from := range map[string]int64{"direct": redisstore.Never, "shared": 1} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				c := client(t)
				s := redisstore.New(c)
				redisstore.ShareFrom(s, from)
				t.Cleanup(func() { _ = c.Close() })
				require.True(t, s.InTime())
				for name, op := range operations {
					began := time.Now()
					require.Error(t, op(trying(t, wait, true, new(certainly)), s, keyFor(t)), name)
					require.Less(t, time.Since(began), slack, name)
				}
			})
		}
	}
}

// What a store cannot promise it does not: a Locker over it has a timer for each
// call, and its budget is kept all the same.
func TestCallsThatMayNotReturnInTime(t *testing.T) {
	t.Parallel()
	const obstacle, budget, slack = 30 * time.Second, 300 * time.Millisecond, 10 * time.Second
	silent := func(t *testing.T) string {
		t.Helper()
		p := respproxy.Start(t, redistest.Shared(t).Addr())
		p.Freeze()
		return p.Addr()
	}
	for name, tt := range map[string]struct {
		client func(t *testing.T) redis.UniversalClient
		inTime bool
	}{
		"another kind of client": {func(t *testing.T) redis.UniversalClient {
			return struct{ redis.UniversalClient }{redis.NewClient(&redis.Options{Addr: silent(t), DialTimeout: obstacle, ReadTimeout: obstacle})}
		}, false},
		"cluster that is not known yet": {func(t *testing.T) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{silent(t)}, DialTimeout: obstacle, ReadTimeout: obstacle})
		}, false},
		"the same, obeying contexts": {func(t *testing.T) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{silent(t)}, ReadTimeout: obstacle, ContextTimeoutEnabled: true})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := tt.client(t)
			s := redisstore.New(c)
			require.Equal(t, tt.inTime, s.InTime())
			l := lock.New(s, lock.WithBudget(budget))
			began := time.Now()
			_, err := l.Acquire(t.Context(), keyFor(t))
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.Less(t, time.Since(began), slack)
			require.NoError(t, c.Close())        // which ends what the calls wait for
			_ = l.Close(timeout(t, time.Second)) // without a client there is no clean-up
		})
	}
}
