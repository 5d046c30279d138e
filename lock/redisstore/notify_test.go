package redisstore_test

import (
	"context"
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
			client := redistest.Shared(t).Client(t)
			return notifying(t, redistest.Shared(t).Client(t)), notifying(t, client), redisstore.New(client)
		},
		"wrapped": func(t *testing.T) (here, there, silent *redisstore.Store) {
			client := redistest.Shared(t).Client(t)
			return notifying(t, client), notifying(t, unknownClient{client}), redisstore.New(client)
		},
		"open": func(t *testing.T) (here, there, silent *redisstore.Store) {
			url := redistest.Shared(t).URL()
			return open(t, url, redisstore.WithNotifications()), open(t, url, redisstore.WithNotifications()), open(t, url)
		},
		"cluster": func(t *testing.T) (here, there, silent *redisstore.Store) {
			cluster := redistest.StartCluster(t, 3, nil)
			client := cluster.Client(t)
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
	client := srv.Client(t)
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
		"wrapper":            unknownClient{redistest.Shared(t).Client(t)},
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
