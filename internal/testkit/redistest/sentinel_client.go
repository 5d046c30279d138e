package redistest

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// URL returns "redis-sentinel://addr,addr,addr/name", with the passwords if
// there are any.
func (p *Pair) URL() string {
	u := "redis-sentinel://" + userinfo(p.watched.password) + strings.Join(p.watched.Addrs(), ",") + "/" + p.Name
	if p.watched.password != "" {
		u += "?sentinel_password=" + url.QueryEscape(p.watched.password)
	}
	return u
}

func failoverOptions(p *Pair) *redis.FailoverOptions {
	return &redis.FailoverOptions{
		MasterName: p.Name, SentinelAddrs: p.watched.Addrs(),
		Password: p.watched.password, SentinelPassword: p.watched.password,
	}
}

// FailoverClient returns a go-redis failover client of p with default options. It is closed when tb ends.
func FailoverClient(tb testing.TB, p *Pair) *redis.Client {
	tb.Helper()
	c := redis.NewFailoverClient(failoverOptions(p))
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// FailoverClusterClient returns go-redis' failover cluster client of p, with default options
// except for dials, which are not repeated. It is closed when tb ends, and so is
// its connection to a Sentinel. Its own Close (of go-redis 9.23) leaves this
// connection and three goroutines behind. But when the client asks for the
// master, it drops a Sentinel that no longer answers.
func FailoverClusterClient(tb testing.TB, p *Pair) *redis.ClusterClient {
	tb.Helper()
	var line line
	o := failoverOptions(p)
	o.Dialer, o.DialerRetries = line.dial, 1
	c := redis.NewFailoverClusterClient(o)
	tb.Cleanup(func() {
		line.cut()
		_ = c.ForEachMaster(context.Background(), func(context.Context, *redis.Client) error { return nil })
		_ = c.Close()
	})
	return c
}

// line makes connections until it is cut. The cut ends them.
type line struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	l.conns = append(l.conns, conn)
	return conn, nil
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for _, conn := range l.conns {
		_ = conn.Close()
	}
}
