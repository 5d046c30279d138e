package faults_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/once"
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
	once.Faults(1000)
	goleak.VerifyTestMain(redistest.Main(m))
}

type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}

const (
	budget = 500 * time.Millisecond // the default
	slack  = 4 * time.Second        // what a busy machine may add to a bounded wait

	// patient is the budget of callers whose calls all succeed, however busy the machine is: the
	// longest for a lease of half a minute.
	patient    = 15 * time.Second
	shortLease = 1500 * time.Millisecond
)

var (
	quiet   = slog.New(slog.DiscardHandler)
	fencing = lock.WithFencing()
	orphan  = lock.Claim{Token: "orphan", Attempt: 1, Lease: time.Minute}
)

// setup is one way to reach a Redis through a proxy: by a store that Open makes, or over a client as
// its users make it.
type setup struct {
	name                   string
	client, cluster, old62 bool
}

var setups = []setup{
	{name: "client", client: true},
	{name: "open"},
	{name: "cluster", cluster: true},
}

// redis62 is a server that answers as Redis 6.2 does, where claims are scripts as
// renewals and releases are.
var redis62 = setup{name: "open on Redis 6.2", old62: true}

// start returns the proxy, the server behind it, and a store that goes through the proxy.
func (s setup) start(t *testing.T) (proxy *respproxy.Proxy, server *redistest.Server, store *redisstore.Store) {
	t.Helper()
	scheme := "redis://"
	switch {
	case s.cluster:
		scheme = "redis-cluster://"
		server = redistest.StartCluster(t, 1, func(_ int, addr string) int {
			proxy = respproxy.Start(t, addr)
			return proxy.Port()
		}).Nodes[0]
	case s.old62:
		server = redistest.Start(t)
		proxy = respproxy.Start(t, respproxy.StartRedis62(t, server.Addr()).Addr())
	default:
		server = redistest.Start(t)
		proxy = respproxy.Start(t, server.Addr())
	}
	if s.client {
		return proxy, server, overClient(t, proxy.Addr())
	}
	store = open(t, scheme+proxy.Addr())
	until(t, func() bool { // from here on, claims are scripts on Redis 6.2
		_, err := store.Claim(t.Context(), "first", orphan)
		return err == nil
	})
	until(t, func() bool {
		_, err := store.Release(t.Context(), "first", orphan)
		return err == nil
	})
	return proxy, server, store
}

func open(t *testing.T, url string) *redisstore.Store {
	t.Helper()
	testmain.SkipIn(t, testmain.Short, "plays faults on real servers in real time")
	var store *redisstore.Store
	until(t, func() (opened bool) { // a busy machine may not answer the first time
		var err error
		store, err = redisstore.Open(t.Context(), url)
		return err == nil
	})
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// overClient returns a store over a client as its users make it.
func overClient(t *testing.T, addr string) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return redisstore.New(client)
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
	took   time.Duration
}

func (d *desk) order(t *testing.T, user string, work time.Duration) answer {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(context.Background(), http.MethodPost, d.URL, http.NoBody))(t)
	req.Header.Set("X-User-ID", user)
	req.Header.Set("X-Work", work.String())
	began := time.Now()
	res, err := d.Client().Do(req)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, res.Body)
	require.NoError(t, res.Body.Close())
	return answer{res.StatusCode, time.Since(began)}
}

// within orders until it is taken, and reports an error if that is not by the
// deadline, or is refused by a holder.
func (d *desk) within(t *testing.T, user string, deadline time.Time) error {
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
		case a.status == http.StatusConflict:
			return fmt.Errorf("refused with %d although the lock has no holder", a.status)
		case tooLate:
			return fmt.Errorf("still %d at the deadline", a.status)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// keyed is a server, or the servers of a Cluster.
type keyed interface {
	Keys(tb testing.TB, patterns ...string) []string
}

// left waits until no key matches, or fails.
func left(t *testing.T, server keyed, pattern string, patience time.Duration) error {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		last := time.Now().After(deadline) // before it looks, or a pause behind the look counts
		keys := server.Keys(t, pattern)
		if len(keys) == 0 {
			return nil
		}
		if last {
			return fmt.Errorf("keys left at rest: %q", keys)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
