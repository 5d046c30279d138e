package redisstore_test

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

// slowClient makes a client of one kind. All its connections go through p.
type slowClient func(tb testing.TB, p *respproxy.Proxy, o redis.Options, hook redis.Hook) redis.UniversalClient

// clientKind is a kind of client with the server behind it.
type clientKind struct {
	server string // its address
	client slowClient
	hooked bool // only of interest with hooks
	opaque bool // the test does not check its connections
}

func clientKinds(t *testing.T) map[string]clientKind {
	t.Helper()
	server, node := redistest.Shared(t).Addr(), redistest.StartCluster(t, 1, nil).Addrs()[0]
	overCluster := func(hookUp func(c *redis.ClusterClient, hook redis.Hook)) slowClient {
		return func(tb testing.TB, p *respproxy.Proxy, o redis.Options, hook redis.Hook) redis.UniversalClient {
			tb.Helper()
			c := redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: []string{node}, Dialer: through(p, o.Dialer), OnConnect: o.OnConnect,
				CredentialsProvider: o.CredentialsProvider, CredentialsProviderContext: o.CredentialsProviderContext,
				StreamingCredentialsProvider: o.StreamingCredentialsProvider,
				MaxRetries:                   o.MaxRetries, DialTimeout: o.DialTimeout,
				ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: o.ContextTimeoutEnabled,
				PoolSize: o.PoolSize, PipelinePoolSize: o.PipelinePoolSize, PoolTimeout: o.PoolTimeout,
				NewClient: func(own *redis.Options) *redis.Client {
					own.Limiter = o.Limiter
					return redis.NewClient(own)
				},
			})
			if hook != nil {
				hookUp(c, hook)
			}
			return c
		}
	}
	overOne := func(_ testing.TB, p *respproxy.Proxy, o redis.Options, hook redis.Hook) redis.UniversalClient {
		o.Addr, o.Dialer = server, through(p, o.Dialer)
		c := redis.NewClient(&o)
		if hook != nil {
			c.AddHook(hook)
		}
		return c
	}
	return map[string]clientKind{
		"client": {server: server, client: overOne},
		"wrapped client": {server: server, opaque: true, client: func(tb testing.TB, p *respproxy.Proxy, o redis.Options, hook redis.Hook) redis.UniversalClient {
			tb.Helper()
			return struct{ redis.UniversalClient }{overOne(tb, p, o, hook)}
		}},
		"cluster client": {server: node, client: overCluster(func(c *redis.ClusterClient, hook redis.Hook) { c.AddHook(hook) })},
		"nodes of a cluster client": {server: node, hooked: true, client: overCluster(func(c *redis.ClusterClient, hook redis.Hook) {
			c.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
		})},
	}
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// through returns a dialer that calls first, and then connects to p for any
// address.
func through(p *respproxy.Proxy, first dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if first != nil {
			if _, err := first(ctx, network, addr); err != nil {
				return nil, err
			}
		}
		return new(net.Dialer).DialContext(ctx, "tcp", p.Addr())
	}
}

// occupy makes commands of the client's user take every connection of its pool of
// one, until the returned function is called. release ends them.
func occupy(t *testing.T, s *slowScene) (release func()) {
	t.Helper()
	clients := s.clients()
	rule := s.proxy.On(respproxy.Match{Name: "get", Key: "occupied"}, respproxy.Drop(respproxy.Hang))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{}, len(clients))
	for _, c := range clients {
		go func() {
			_ = c.Get(ctx, "occupied").Err()
			done <- struct{}{}
		}()
	}
	rule.Wait(t, len(clients))
	return func() {
		cancel()
		s.proxy.Clear()
		s.reconnect(t)
		for range clients {
			<-done
		}
	}
}
