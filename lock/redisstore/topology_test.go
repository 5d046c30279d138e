package redisstore_test

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// quotable is a password that URLs have to quote.
const quotable = "p@ss:w/rd#?%"

// try does a little of everything.
func try(t *testing.T, s *redisstore.Store) {
	t.Helper()
	for n := range 8 { // so that every master of a cluster is met
		key := fmt.Sprintf("%s&%d", keyFor(t), n)
		take(t, s, key, fenced("a"))
		require.Len(t, listed(t, s), n+1)
	}
	for n := range 8 {
		release(t, s, fmt.Sprintf("%s&%d", keyFor(t), n), "a")
	}
	require.NoError(t, s.Check(t.Context()))
}

// A rediss-cluster URL verifies certificates, unless it says otherwise.
func TestClusterOverTLS(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, func(_ int, addr string) int {
		tcp, err := net.ResolveTCPAddr("tcp", terminateTLS(t, addr))
		require.NoError(t, err)
		return tcp.Port
	}, "--requirepass", quotable)
	secure := strings.Replace(cluster.URL(), "redis", "rediss", 1)
	_, err := redisstore.Open(timeout(t, 3*patience), withLongTimeouts(secure))
	require.ErrorContains(t, err, "certificate")
	try(t, open(t, secure+"?skip_verify=true"))
}

// A node that was reset, or has lost its disk, knows no master. Calls that ask it for the masters fail, and
// the listener, which has no caller, asks again.
func TestClusterWithoutMasters(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Start(t, "--cluster-enabled", "yes").Addr())
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{p.Addr()}})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	s := notifying(t, client)
	_, stop := s.Watch(keyFor(t))
	defer stop()
	require.Eventually(t, func() bool { return p.Commands("cluster") > 1 }, patience, 5*time.Millisecond)
	for call, ask := range map[string]func() error{
		"Check":   func() error { return s.Check(t.Context()) },
		"Servers": func() error { _, err := s.Servers(t.Context()); return err },
		"List":    func() error { return inspections["List"](t.Context(), s) },
		"Page":    func() error { return inspections["Page"](t.Context(), s) },
	} {
		err := ask()
		require.ErrorContains(t, err, "no master", call)
		requireNotApplied(t, err, "CLUSTERDOWN")
	}
}

// sentinelOverTLS is the URL of a Sentinel that wants TLS, and knows a master
// by an address that wants it too.
func sentinelOverTLS(t *testing.T, watched *redistest.Sentinel) string {
	t.Helper()
	addr := watched.Addrs()[0]
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr, Password: quotable})
	defer func() { require.NoError(t, sentinel.Close()) }()
	_, port, err := net.SplitHostPort(terminateTLS(t, watched.Pairs[0].Master.Addr()))
	require.NoError(t, err)
	const never = "9" // Sentinels that would have to miss it: to them, without TLS, it looks down
	require.NoError(t, sentinel.Monitor(t.Context(), "tls", "127.0.0.1", port, never).Err())
	password := url.QueryEscape(quotable)
	return "rediss-sentinel://:" + password + "@" + terminateTLS(t, addr) + "/tls?skip_verify=true&sentinel_password=" + password
}
