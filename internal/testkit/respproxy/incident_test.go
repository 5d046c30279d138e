package respproxy_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

var ends = map[string]respproxy.End{
	"close": respproxy.Close, "reset": respproxy.Reset, "hang": respproxy.Hang,
}

// TestFoundingIncident: with go-redis' default retries, a SETNX whose reply is
// lost reports that another client holds the key. No other does.
func TestFoundingIncident(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := started(t)
			c := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: readTimeout})
			defer func() { require.NoError(t, c.Close()) }()
			founding(t, s, p, c, end)
		})
	}
}

func TestFoundingIncidentOnCluster(t *testing.T) {
	t.Parallel()
	var p *respproxy.Proxy
	cluster := redistest.StartCluster(t, 1, func(_ int, addr string) int {
		p = respproxy.Start(t, addr)
		return p.Port()
	})
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ReadTimeout: readTimeout})
			defer func() { require.NoError(t, c.Close()) }()
			founding(t, cluster.Nodes[0], p, c, end)
		})
	}
}

func founding(t *testing.T, s *redistest.Server, p *respproxy.Proxy, c redis.UniversalClient, end respproxy.End) {
	t.Helper()
	key, token := key(t), "our token"
	require.NoError(t, c.Ping(t.Context()).Err())
	lost := p.On(respproxy.Match{Name: "set|setnx", Key: key, Count: 1}, respproxy.Swallow(end))
	taken, err := c.SetNX(t.Context(), key, token, time.Hour).Result()
	require.NoError(t, err)
	require.False(t, taken, "the client gets the reply no")
	require.Equal(t, token, s.Do(t, "GET", key), "and it holds the key")
	require.Equal(t, 1, lost.Hits())
}

// TestFoundingIncidentWithoutRetries is its twin: the error that retries hide.
func TestFoundingIncidentWithoutRetries(t *testing.T) {
	t.Parallel()
	s, p := started(t)
	key := key(t)
	c := bare(t, p.Addr())
	p.On(respproxy.Match{Name: "set", Key: key, Count: 1}, respproxy.Swallow(respproxy.Close))
	_, err := c.SetNX(t.Context(), key, "our token", time.Hour).Result()
	requireEOF(t, err)
	require.Equal(t, "our token", s.Do(t, "GET", key))
}
