package redisstore_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// patience is the time for which a test waits for an event that comes within milliseconds.
const patience = 20 * time.Second

// notifying returns a store that publishes and listens over client.
func notifying(tb testing.TB, client redis.UniversalClient) *redisstore.Store {
	tb.Helper()
	s := redisstore.New(client, redisstore.WithNotifications())
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// hears waits for a value.
func hears(tb testing.TB, wake <-chan struct{}) {
	tb.Helper()
	require.True(tb, heard(wake, patience), "nothing was heard")
}

func heard(wake <-chan struct{}, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-wake:
		return true
	case <-timer.C:
		return false
	}
}

// ends are the ways in which an entry ends, each with its preparation. Only the
// end is reported.
var ends = map[string]func(t *testing.T, silent, s *redisstore.Store, key string) (bool, error){
	"release": func(t *testing.T, silent, s *redisstore.Store, key string) (bool, error) {
		take(t, silent, key, claim("a"))
		return s.Release(t.Context(), key, lock.Claim{Token: "a"})
	},
	"fenced release": func(t *testing.T, silent, s *redisstore.Store, key string) (bool, error) {
		take(t, silent, key, fenced("a"))
		return s.Release(t.Context(), key, lock.Claim{Token: "a"})
	},
	"settle": func(t *testing.T, silent, s *redisstore.Store, key string) (bool, error) {
		take(t, silent, key, claim("a"))
		return s.Settle(t.Context(), key, lock.Claim{Token: "a"}, []byte("receipt"), time.Minute)
	},
	"settle with a large receipt": func(t *testing.T, silent, s *redisstore.Store, key string) (bool, error) {
		take(t, silent, key, claim("a"))
		return s.Settle(t.Context(), key, lock.Claim{Token: "a"}, large, time.Minute)
	},
	"forget": func(t *testing.T, silent, s *redisstore.Store, key string) (bool, error) {
		take(t, silent, key, claim("a"))
		must.Yes(t)(silent.Settle(t.Context(), key, lock.Claim{Token: "a"}, nil, time.Minute))
		return s.Forget(t.Context(), key, "a")
	},
}

// A store that watches an entry is notified of each end of the entry, over each way to the server.
func TestWatchHears(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(t *testing.T) (here, there, silent *redisstore.Store){
		"client": func(t *testing.T) (here, there, silent *redisstore.Store) {
			client := redistest.Client(t, redistest.Shared(t))
			return notifying(t, redistest.Client(t, redistest.Shared(t))), notifying(t, client), redisstore.New(client)
		},
		"wrapped": func(t *testing.T) (here, there, silent *redisstore.Store) {
			client := redistest.Client(t, redistest.Shared(t))
			return notifying(t, client), notifying(t, unknownClient{client}), redisstore.New(client)
		},
		"open": func(t *testing.T) (here, there, silent *redisstore.Store) {
			url := redistest.Shared(t).URL()
			return open(t, url, redisstore.WithNotifications()), open(t, url, redisstore.WithNotifications()), open(t, url)
		},
		"cluster": func(t *testing.T) (here, there, silent *redisstore.Store) {
			cluster := redistest.StartCluster(t, 3, nil)
			client := redistest.ClusterClient(t, cluster)
			return notifying(t, client), open(t, cluster.URL(), redisstore.WithNotifications()), redisstore.New(client)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here, there, silent := connect(t)
			// The nodes of a cluster pass on published messages, and lose them when one of them
			// stops for a second.
			tries := 1
			if name == "cluster" {
				tries = 10
			}
			for i, key := range []string{"1", "a b", "{x}y", strings.Repeat("long", 200)} {
				if key += keyFor(t); i%2 == 0 {
					key = "once:" + key
				}
				wake, stop := here.Watch(key)
				defer stop()
				hears(t, wake) // that the watch has begun
				for how, end := range ends {
					notified := false
					for try := 0; try < tries && !notified; try++ {
						must.Yes(t)(end(t, silent, there, key))
						notified = heard(wake, patience/time.Duration(tries))
						_, err := silent.Forget(t.Context(), key, "a")
						require.NoError(t, err)
					}
					require.True(t, notified, how)
				}
				if i%3 == 0 {
					stop() // so that others come and go
				}
			}
		})
	}
}

// Only the end of an entry is published, and only with the option.
func TestWhatIsPublished(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	client := redistest.Client(t, srv)
	loud, silent := notifying(t, client), redisstore.New(client)
	ctx := t.Context()
	ours, theirs := lock.Claim{Token: "a"}, lock.Claim{Token: "b"}
	for name, tt := range map[string]struct {
		messages int
		do       func(s lock.Store, key string) (any, error)
	}{
		"claim":           {0, func(s lock.Store, key string) (any, error) { return s.Claim(ctx, key, claim("b")) }},
		"renew":           {0, func(s lock.Store, key string) (any, error) { return s.Renew(ctx, key, claim("a")) }},
		"get":             {0, func(s lock.Store, key string) (any, error) { return s.Get(ctx, key) }},
		"release":         {1, func(s lock.Store, key string) (any, error) { return s.Release(ctx, key, ours) }},
		"foreign release": {0, func(s lock.Store, key string) (any, error) { return s.Release(ctx, key, theirs) }},
		"foreign settle":  {0, func(s lock.Store, key string) (any, error) { return s.Settle(ctx, key, theirs, nil, time.Minute) }},
		"second release": {1, func(s lock.Store, key string) (any, error) {
			_, _ = s.Release(ctx, key, ours)
			return s.Release(ctx, key, ours)
		}},
		"second settle": {1, func(s lock.Store, key string) (any, error) {
			_, _ = s.Settle(ctx, key, ours, nil, time.Minute)
			return s.Settle(ctx, key, ours, nil, time.Minute)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sub := client.Subscribe(ctx, nameOf(t))
			defer func() { require.NoError(t, sub.Close()) }()
			_, err := sub.ReceiveTimeout(ctx, patience)
			require.NoError(t, err)
			for s, want := range map[*redisstore.Store]int{loud: tt.messages, silent: 0} {
				_, err := silent.Forget(ctx, keyFor(t), "a")
				require.NoError(t, err)
				take(t, silent, keyFor(t), claim("a"))
				_, err = tt.do(s, keyFor(t))
				require.NoError(t, err)
				require.NoError(t, client.Publish(ctx, nameOf(t), "end").Err())
				got := 0
				for {
					message := must.Get(sub.ReceiveTimeout(ctx, patience))(t)
					m, ok := message.(*redis.Message)
					require.True(t, ok)
					if m.Payload == "end" {
						break
					}
					require.Empty(t, m.Payload)
					got++
				}
				require.Equal(t, want, got)
			}
		})
	}
}

// Over a client that sends every command itself there is no listener. A caller with a channel would poll less
// often, and hear nothing.
func TestClientsWithoutAListener(t *testing.T) {
	t.Parallel()
	onConnect := func(context.Context, *redis.Conn) error { return nil }
	for name, client := range map[string]redis.UniversalClient{
		"wrapper":            unknownClient{redistest.Client(t, redistest.Shared(t))},
		"OnConnect":          redis.NewClient(&redis.Options{OnConnect: onConnect}),
		"Cluster, OnConnect": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{":1"}, OnConnect: onConnect}),
	} {
		wake, stop := notifying(t, client).Watch(keyFor(t))
		defer stop()
		require.Nil(t, wake, name)
		require.NoError(t, client.Close())
	}
}

// A check without a deadline ends although the server does not answer the listener.
func TestCheckOfASilentListener(t *testing.T) {
	t.Parallel()
	for _, silent := range []string{"subscribe", "unsubscribe"} {
		p := respproxy.Start(t, redistest.Shared(t).Addr())
		s := open(t, p.URL(), redisstore.WithNotifications())
		p.On(respproxy.Match{Name: silent}, respproxy.Swallow(respproxy.Hang))
		requireNotApplied(t, s.Check(canceledAfter(t, patience)), "silent")
	}
}

// A user without the permission to publish can end its own entries.
func TestNotificationsWithoutPermission(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	allow(t, srv, "u", failure.MinimalACL)
	s := notifying(t, clientOf(t, &redis.Options{Addr: srv.Addr(), Username: "u", Password: "p"}))
	wake, stop := s.Watch("k")
	defer stop()
	for _, c := range []lock.Claim{claim("a"), fenced("b")} {
		take(t, s, "k", c)
		release(t, s, "k", c.Token)
	}
	take(t, s, "k", claim("c"))
	must.Yes(t)(s.Settle(t.Context(), "k", lock.Claim{Token: "c"}, []byte("receipt"), time.Minute))
	require.Equal(t, "receipt", string(must.Entry(t)(s.Get(t.Context(), "k")).Receipt))
	require.Empty(t, wake)
}

// channels lists the channels with a subscriber.
func channels(tb testing.TB, srv *redistest.Server) []any {
	tb.Helper()
	all, ok := srv.Do(tb, "PUBSUB", "CHANNELS").([]any)
	require.True(tb, ok)
	return all
}

// listeners returns the number of connections that subscribe.
func listeners(tb testing.TB, srv *redistest.Server) int {
	tb.Helper()
	text, _ := srv.Do(tb, "CLIENT", "LIST", "TYPE", "pubsub").(string)
	return strings.Count(text, "\n")
}

func TestWatchesShareOneConnectionForAsLongAsThereAreAny(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := notifying(t, redistest.Client(t, srv))
	require.Zero(t, listeners(t, srv))
	var stops []func()
	for i := range 200 {
		wake, stop := s.Watch("k" + strconv.Itoa(i/2))
		hears(t, wake) // the second of a key, at once
		stops = append(stops, stop)
	}
	require.Equal(t, 1, listeners(t, srv))
	require.Len(t, channels(t, srv), 100)
	for i, stop := range stops {
		if i%2 == 0 {
			stop()
		}
	}
	wake, stop := s.Watch("another")
	hears(t, wake)
	require.Len(t, channels(t, srv), 101, "there still is one who watches")
	for _, stop := range stops {
		stop() // half of them again
	}
	require.Eventually(t, func() bool { return len(channels(t, srv)) == 1 }, patience, 5*time.Millisecond)
	require.Equal(t, 1, listeners(t, srv))
	stop()
	require.Eventually(t, func() bool { return listeners(t, srv) == 0 }, patience, 20*time.Millisecond)

	wake, stop = s.Watch("k0")
	defer stop()
	hears(t, wake)
	take(t, s, "k0", claim("a"))
	release(t, s, "k0", "a")
	hears(t, wake)
}

// A watch that is stopped and begun again in the same moment is notified.
func TestWatchesThatFlicker(t *testing.T) {
	t.Parallel()
	s := notifying(t, redistest.Client(t, redistest.Shared(t)))
	for range 300 {
		wake, stop := s.Watch(keyFor(t))
		hears(t, wake)
		stop()
	}
	wake, stop := s.Watch(keyFor(t))
	defer stop()
	hears(t, wake)
	take(t, s, keyFor(t), claim("a"))
	release(t, s, keyFor(t), "a")
	hears(t, wake)
}

func TestCloseEndsListening(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	client := redistest.Client(t, srv)
	s := redisstore.New(client, redisstore.WithNotifications())
	wake, stop := s.Watch("k")
	hears(t, wake)
	require.NoError(t, s.Close())
	require.Eventually(t, func() bool { return listeners(t, srv) == 0 }, patience, 5*time.Millisecond)
	stop()
	wake, stop = s.Watch("k")
	stop()
	require.Nil(t, wake)
	require.Zero(t, listeners(t, srv))
	require.NoError(t, s.Close())
}

// A connection that ends is replaced. The callers that watch are notified, because events were missed.
func TestListenerReconnects(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(t *testing.T, srv *redistest.Server, p *respproxy.Proxy){
		"killed": func(t *testing.T, srv *redistest.Server, _ *respproxy.Proxy) {
			require.EqualValues(t, 1, srv.Do(t, "CLIENT", "KILL", "TYPE", "pubsub"))
		},
		"silent": func(t *testing.T, _ *redistest.Server, p *respproxy.Proxy) {
			p.On(respproxy.Match{Name: "ping", Count: 1}, respproxy.Swallow(respproxy.Hang)).Wait(t, 1)
		},
		"away for a while": func(t *testing.T, _ *redistest.Server, p *respproxy.Proxy) {
			before := p.Commands("subscribe")
			p.Down()
			p.Up(t)
			require.Eventually(t, func() bool { return p.Commands("subscribe") > before }, patience, 5*time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			p := respproxy.Start(t, srv.Addr())
			// In RESP2 the proxy knows which answer is whose.
			client := clientOf(t, &redis.Options{Addr: p.Addr(), Protocol: 2})
			s := notifying(t, client)
			wake, stop := s.Watch("k")
			defer stop()
			hears(t, wake)
			breakIt(t, srv, p)
			hears(t, wake)
			other := notifying(t, redistest.Client(t, srv))
			take(t, other, "k", claim("a"))
			release(t, other, "k", "a")
			hears(t, wake)
		})
	}
}

// Not parallel: there is one default logger.
func TestRefusedListenersSaySoOnce(t *testing.T) {
	log := logTo(t)
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	// In RESP2 the proxy knows which answer is whose.
	client := redis.NewClient(&redis.Options{Addr: p.Addr(), Protocol: 2})
	s := redisstore.New(client, redisstore.WithNotifications())
	wake, stop := s.Watch(keyFor(t))
	hears(t, wake)
	stop()
	require.Zero(t, log.Count("no notifications"))

	refused := p.On(respproxy.Match{Name: "subscribe"}, respproxy.ReplyError("NOPERM this user has no permissions"))
	for i := range 3 {
		_, stop := s.Watch(keyFor(t) + strconv.Itoa(i))
		defer stop()
		refused.Wait(t, i+1)
		require.Eventually(t, func() bool { return log.Count("no notifications") == 1 }, patience, 5*time.Millisecond)
	}
	refused.WaitLanded(t)
	require.NoError(t, s.Close())
	require.NoError(t, client.Close())
	require.Equal(t, 1, log.Count("no notifications"))
	require.Equal(t, 1, log.Count("NOPERM"))
}

// Nothing that a server does, or does not do, holds up a caller that watches or closes.
func TestWatchingNeverBlocks(t *testing.T) {
	t.Parallel()
	const obstacle = 30 * time.Second // a time-out of the client
	for name, breakIt := range map[string]func(p *respproxy.Proxy) (broken func(t *testing.T)){
		"silent": func(p *respproxy.Proxy) func(*testing.T) {
			rule := p.SwallowReplies(respproxy.Hang)
			return func(t *testing.T) { rule.Wait(t, 1) } // of the handshake, or of SUBSCRIBE
		},
		"refused": func(p *respproxy.Proxy) func(*testing.T) {
			p.Down()
			return func(*testing.T) {}
		},
	} {
		for _, when := range []string{"before", "while listening"} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				p := respproxy.Start(t, redistest.Shared(t).Addr())
				client := redis.NewClient(&redis.Options{Addr: p.Addr(), DialTimeout: obstacle, ReadTimeout: obstacle})
				s := redisstore.New(client, redisstore.WithNotifications())
				if when == "while listening" {
					wake, stop := s.Watch(keyFor(t))
					defer stop()
					hears(t, wake)
				}
				broken := breakIt(p)
				began := time.Now()
				for i := range 100 {
					_, stop := s.Watch(keyFor(t) + strconv.Itoa(i))
					defer stop()
				}
				require.Less(t, time.Since(began), obstacle/3, "a hundred times")
				broken(t)
				began = time.Now()
				require.NoError(t, s.Close())
				took := time.Since(began)
				require.Less(t, took, obstacle/3, "the client's own time-out is longer")
				t.Log(took)
				require.NoError(t, client.Close())
				p.Down()
			})
		}
	}
}
