package faults_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func TestMain(m *testing.M) {
	redis.SetLogger(mute{}) // it reports every connection that is lost here
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	testmain.AtOnce(4)
	goleak.VerifyTestMain(redistest.Main(m))
}

type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}

const (
	budget = 500 * time.Millisecond // the default
	slack  = 4 * time.Second        // what a busy machine may add to a bounded wait
)

var quiet = slog.New(slog.DiscardHandler)

// setup is one way to reach a Redis through a proxy.
type setup struct {
	name string
	// start returns the proxy, the server behind it, and a store that goes
	// through the proxy.
	start func(t *testing.T) (*respproxy.Proxy, *redistest.Server, *redisstore.Store)
}

// setups: a client as its users make it and one that Open makes, on a single
// node and on a cluster, with and without shared round trips.
var setups = []setup{
	{"client", func(t *testing.T) (*respproxy.Proxy, *redistest.Server, *redisstore.Store) {
		t.Helper()
		server := redistest.Start(t)
		proxy := respproxy.Start(t, server.Addr())
		client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		return proxy, server, redisstore.New(client)
	}},
	{"open", func(t *testing.T) (*respproxy.Proxy, *redistest.Server, *redisstore.Store) {
		t.Helper()
		server := redistest.Start(t)
		proxy := respproxy.Start(t, server.Addr())
		return proxy, server, open(t, proxy.URL())
	}},
	{"client that shares round trips", func(t *testing.T) (*respproxy.Proxy, *redistest.Server, *redisstore.Store) {
		t.Helper()
		server := redistest.Start(t)
		proxy := respproxy.Start(t, server.Addr())
		client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PipelinePoolSize: fewConnections})
		t.Cleanup(func() { _ = client.Close() })
		return proxy, server, redisstore.New(client)
	}},
	{"open that shares round trips", func(t *testing.T) (*respproxy.Proxy, *redistest.Server, *redisstore.Store) {
		t.Helper()
		server := redistest.Start(t)
		proxy := respproxy.Start(t, server.Addr())
		return proxy, server, open(t, sharing(proxy.URL()))
	}},
	{"cluster client", func(t *testing.T) (*respproxy.Proxy, *redistest.Server, *redisstore.Store) {
		t.Helper()
		proxy, cluster := proxiedCluster(t)
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{proxy.Addr()}})
		t.Cleanup(func() { _ = client.Close() })
		return proxy, cluster.Nodes[0], redisstore.New(client)
	}},
	{"cluster open", func(t *testing.T) (*respproxy.Proxy, *redistest.Server, *redisstore.Store) {
		t.Helper()
		proxy, cluster := proxiedCluster(t)
		return proxy, cluster.Nodes[0], open(t, cluster.URL())
	}},
	{"cluster open that shares round trips", func(t *testing.T) (*respproxy.Proxy, *redistest.Server, *redisstore.Store) {
		t.Helper()
		proxy, cluster := proxiedCluster(t)
		return proxy, cluster.Nodes[0], open(t, sharing(cluster.URL()))
	}},
}

// redis62 is a server that answers as Redis 6.2 does, where claims are scripts as
// renewals and releases are.
var redis62 = setup{"open on Redis 6.2", func(t *testing.T) (*respproxy.Proxy, *redistest.Server, *redisstore.Store) {
	t.Helper()
	server := redistest.Start(t)
	proxy := respproxy.Start(t, respproxy.StartRedis62(t, server.Addr()).Addr())
	store := open(t, proxy.URL())
	e, err := store.Claim(t.Context(), "first", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute})
	require.NoError(t, err, "claims are scripts from here on")
	_, err = store.Release(t.Context(), "first", lock.Claim{Token: e.Token})
	require.NoError(t, err)
	return proxy, server, store
}}

// A store shares round trips when more calls are in flight than it has connections
// for.
const fewConnections = 2

// sharing is url with so few connections.
func sharing(url string) string { return url + "?pipeline_pool_size=" + strconv.Itoa(fewConnections) }

func proxiedCluster(t *testing.T) (*respproxy.Proxy, *redistest.Cluster) {
	t.Helper()
	var proxy *respproxy.Proxy
	cluster := redistest.StartCluster(t, 1, func(_ int, addr string) int {
		proxy = respproxy.Start(t, addr)
		return proxy.Port()
	})
	return proxy, cluster
}

func open(t *testing.T, url string) *redisstore.Store {
	t.Helper()
	testmain.SkipIn(t, testmain.Short, "plays faults on real servers in real time")
	store, err := redisstore.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// locker is closed, and must have ended everything, before its store is.
func locker(t *testing.T, store lock.Store, opts ...lock.Option) *lock.Locker {
	t.Helper()
	l := lock.New(store, append([]lock.Option{lock.WithLogger(quiet)}, opts...)...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	return l
}

// desk is a route that takes one order per user at a time.
type desk struct {
	*httptest.Server
	orders atomic.Int64
}

func newDesk(t *testing.T, guard func(http.Handler) http.Handler) *desk {
	t.Helper()
	d := new(desk)
	d.Server = httptest.NewServer(guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		work, _ := time.ParseDuration(r.Header.Get("X-Work"))
		time.Sleep(work)
		d.orders.Add(1)
		w.WriteHeader(http.StatusCreated)
	})))
	t.Cleanup(d.Close)
	return d
}

func perUser(l *lock.Locker) func(http.Handler) http.Handler {
	return latch.Lock(l, "user", keyfunc.Header("X-User-ID"))
}

// answer is the answer to an order.
type answer struct {
	status int
	header http.Header
	took   time.Duration
}

func (d *desk) order(t *testing.T, user string, work time.Duration) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, d.URL, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("X-User-ID", user)
	req.Header.Set("X-Work", work.String())
	began := time.Now()
	res, err := d.Client().Do(req)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, res.Body)
	require.NoError(t, res.Body.Close())
	return answer{res.StatusCode, res.Header, time.Since(began)}
}

// within orders until it is taken, and reports an error if that is not by the
// deadline. refused says whether a 409 is an error too.
func (d *desk) within(t *testing.T, user string, deadline time.Time, refused bool) error {
	t.Helper()
	for {
		tooLate := time.Now().After(deadline.Add(slack)) // before it asks, or a pause behind the answer counts
		a := d.order(t, user, 0)
		switch {
		case a.status == http.StatusCreated:
			if late := time.Since(deadline); late > slack {
				return fmt.Errorf("taken %v too late", late)
			}
			return nil
		case a.status == http.StatusConflict && refused:
			return fmt.Errorf("refused with %d although the lock has no holder", a.status)
		case tooLate:
			return fmt.Errorf("still %d at the deadline", a.status)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// left waits until nothing of the store is on the server, or fails.
func left(t *testing.T, server *redistest.Server, patience time.Duration) error {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		last := time.Now().After(deadline) // before it looks, or a pause behind the look counts
		keys := server.Keys(t, "latch:*")
		if len(keys) == 0 {
			return nil
		}
		if last {
			return fmt.Errorf("keys left at rest: %q", keys)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
