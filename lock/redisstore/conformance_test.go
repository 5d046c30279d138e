package redisstore_test

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// The shortest lease that a busy machine can distinguish from no lease.
const shortest = 30 * time.Millisecond

// Each store has its own server: a listing would also take the time of the entries of other tests.
func TestConformance(t *testing.T) {
	t.Parallel()
	same := func(s lock.Store) func(*testing.T) lock.Store {
		return func(*testing.T) lock.Store { return s }
	}
	// The others of a rule call while it runs, and not while it waits for its turn.
	shared := func(s *redisstore.Store) func(*testing.T) lock.Store {
		return func(t *testing.T) lock.Store { return sharing(t, s) }
	}
	parallel.Run(t, "client", func(t *testing.T) {
		latchtest.TestStore(t, shortest, same(overClient(t, redistest.Start(t).Addr(), nil)))
	})
	parallel.Run(t, "wrapped client", func(t *testing.T) {
		client := clientOf(t, &redis.Options{Addr: redistest.Start(t).Addr(), Protocol: 2})
		latchtest.TestStore(t, shortest, same(redisstore.New(unknownClient{client})))
	})
	parallel.Run(t, "open", func(t *testing.T) {
		latchtest.TestStore(t, shortest, same(open(t, redistest.Start(t).URL())))
	})
	parallel.Run(t, "cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t, 3, nil, "--requirepass", quotable)
		cluster.AddReplicas(t)
		latchtest.TestStore(t, shortest, same(redisstore.New(redistest.ClusterClient(t, cluster))))
		latchtest.TestStore(t, shortest, same(open(t, cluster.URL())))
	})
	parallel.Run(t, "sentinel", func(t *testing.T) {
		watched := redistest.StartSentinel(t, 1, "--requirepass", quotable)
		pair := watched.Pairs[0]
		latchtest.TestStore(t, shortest, same(redisstore.New(redistest.FailoverClient(t, pair))))
		latchtest.TestStore(t, shortest, same(redisstore.New(redistest.FailoverClusterClient(t, pair))))
		latchtest.TestStore(t, shortest, same(open(t, pair.URL())))
		try(t, open(t, sentinelOverTLS(t, watched)))
		wrong := "redis://:" + url.QueryEscape(quotable) + "@" + watched.Addrs()[0] + "?client_name=x"
		_, err := redisstore.Open(timeout(t, patience), withLongTimeouts(wrong))
		require.ErrorContains(t, err, "redis-sentinel://")
		require.NotContains(t, err.Error(), "\n")
	})
	parallel.Run(t, "shared", func(t *testing.T) {
		server, cluster := redistest.Start(t), redistest.StartCluster(t, 3, nil)
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		latchtest.TestStore(t, shortest, shared(overClient(t, server.Addr(), nil)))
		latchtest.TestStore(t, shortest, shared(open(t, server.URL())))
		latchtest.TestStore(t, shortest, shared(redisstore.New(client)))
		latchtest.TestStore(t, shortest, shared(open(t, cluster.URL())))
		fenced := open(t, server.URL())
		latchtest.TestStore(t, shortest, func(t *testing.T) lock.Store { return alwaysFenced{sharing(t, fenced)} })
	})
	parallel.Run(t, "fenced", func(t *testing.T) {
		latchtest.TestStore(t, shortest, same(alwaysFenced{open(t, redistest.Start(t).URL())}))
	})
	for name, k := range kinds {
		parallel.Run(t, name+", by its own commands", func(t *testing.T) {
			s, _ := k.behind(t, redistest.Start(t))
			latchtest.TestStore(t, shortest, same(s))
		})
	}
	parallel.Run(t, "before Redis 7", func(t *testing.T) {
		p := respproxy.StartRedis62(t, redistest.Start(t).Addr())
		latchtest.TestStore(t, shortest, same(open(t, p.URL())))
		latchtest.TestStore(t, shortest, shared(overClient(t, p.Addr(), nil)))
		latchtest.TestStore(t, shortest, same(alwaysFenced{open(t, p.URL())}))
	})
}

// sharing keeps s busy with the calls of others, so that the claims of the test share
// a connection with them.
func sharing(t *testing.T, s *redisstore.Store) *redisstore.Store {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var others sync.WaitGroup
	for i := range 3 {
		key := member(t, i)
		others.Go(func() {
			for ctx.Err() == nil {
				_, _ = s.Claim(ctx, key, claim("another"))
				_, _ = s.Release(ctx, key, lock.Claim{Token: "another"})
				time.Sleep(5 * time.Millisecond) // often enough, and without a core for it
			}
		})
	}
	t.Cleanup(func() {
		stop()
		others.Wait()
	})
	return s
}

// alwaysFenced makes every claim a fenced one, and hides that from rules that want none.
type alwaysFenced struct{ *redisstore.Store }

func (s alwaysFenced) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	plain := !c.Fenced
	c.Fenced = true
	e, err := s.Store.Claim(ctx, key, c)
	if plain {
		e.Fence = 0
	}
	return e, err
}

// The least a user needs is enough, and nothing is tried that the server would have to refuse.
func TestMinimalACL(t *testing.T) {
	t.Parallel()
	single := func(t *testing.T) (*redistest.Server, string) {
		srv := redistest.Start(t)
		return srv, "redis://u:p@" + srv.Addr()
	}
	for name, tt := range map[string]struct {
		rules string
		start func(t *testing.T) (srv *redistest.Server, url string)
		opts  []redisstore.Option
	}{
		"single":        {"", single, nil},
		"notifications": {failure.NotifyACL, single, []redisstore.Option{redisstore.WithNotifications()}},
		"database": {"+select", func(t *testing.T) (*redistest.Server, string) {
			srv, url := single(t)
			return srv, url + "/7"
		}, nil},
		"cluster": {failure.ClusterACL, func(t *testing.T) (*redistest.Server, string) {
			cluster := redistest.StartCluster(t, 1, nil)
			return cluster.Nodes[0], "redis-cluster://u:p@" + cluster.Addrs()[0]
		}, nil},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			srv, url := tt.start(t)
			allow(t, srv, "u", failure.MinimalACL, failure.LargeACL, tt.rules)
			t.Run("suite", func(t *testing.T) {
				s := open(t, url, tt.opts...)
				take(t, sharing(t, open(t, url)), "y", claim("a"))
				latchtest.TestStore(t, shortest, func(*testing.T) lock.Store { return s })
				take(t, s, "x", fenced("a"))
				require.NotEmpty(t, listed(t, s))
				if wake, stop := s.Watch("x"); wake != nil {
					hears(t, wake)
					release(t, s, "x", "a")
					hears(t, wake)
					stop()
					require.Eventually(t, func() bool { return len(channels(t, srv)) == 0 }, patience, 5*time.Millisecond)
				}
			})
			refused, err := redistest.Client(t, srv).ACLLog(t.Context(), 10).Result()
			require.NoError(t, err)
			for _, r := range refused { // commands that older servers do not know cannot be among the rules
				require.Regexp(t, "^(delifeq|delex)$", r.Object)
				require.Equal(t, int64(1), r.Count, "it is not tried again")
			}
		})
	}
}

// Replies are slow, so calls are interrupted while the server has their commands.
func TestConformanceOverASlowLine(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "runs the conformance suite over a slow line")
	t.Parallel()
	p := respproxy.Start(t, redistest.Start(t).Addr())
	p.On(respproxy.Match{}, respproxy.DelayReply(2*time.Millisecond))
	for name, s := range map[string]lock.Store{"New": overClient(t, p.Addr(), nil), "Open": open(t, p.URL())} {
		parallel.Run(t, name, func(t *testing.T) {
			latchtest.TestStore(t, shortest, func(*testing.T) lock.Store { return s })
		})
	}
}
