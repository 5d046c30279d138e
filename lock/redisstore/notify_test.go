package redisstore_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

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
	"forget": func(t *testing.T, silent, s *redisstore.Store, key string) (bool, error) {
		take(t, silent, key, claim("a"))
		_, err := silent.Settle(t.Context(), key, lock.Claim{Token: "a"}, nil, time.Minute)
		require.NoError(t, err)
		return s.Forget(t.Context(), key, "a")
	},
}

// A store that watches an entry is notified of each end of the entry, over each
// way to the server.
func TestWatchHears(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(t *testing.T) (here, there, silent *redisstore.Store){
		"client": func(t *testing.T) (here, there, silent *redisstore.Store) {
			client := redistest.Shared(t).Client(t)
			return notifying(t, redistest.Shared(t).Client(t)), notifying(t, client), redisstore.New(client)
		},
		"RESP2": func(t *testing.T) (here, there, silent *redisstore.Store) {
			client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr(), Protocol: 2})
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			return notifying(t, client), notifying(t, client), redisstore.New(client)
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
		"sentinel": func(t *testing.T) (here, there, silent *redisstore.Store) {
			addr := startSentinel(t, "m", redistest.Start(t, "--requirepass", "p"), "p")
			url := "redis-sentinel://:p@" + addr + "/m?sentinel_password=p&dial_timeout=10s&read_timeout=10s"
			return open(t, url, redisstore.WithNotifications()), open(t, url, redisstore.WithNotifications()), open(t, url)
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
			for i, key := range []string{"1", "2", "3", "4", "a b", "{x}y", strings.Repeat("long", 200)} {
				if key += keyFor(t); i%2 == 0 {
					key = "once:" + key
				}
				wake, stop := here.Watch(key)
				defer stop()
				hears(t, wake) // that the watch has begun
				for how, end := range ends {
					notified := false
					for try := 0; try < tries && !notified; try++ {
						ok, err := end(t, silent, there, key)
						require.NoError(t, err)
						require.True(t, ok)
						notified = heard(wake, patience/time.Duration(tries))
						_, err = silent.Forget(t.Context(), key, "a")
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
	for name, tt := range map[string]struct {
		messages int
		do       func(s lock.Store, key string) error
	}{
		"claim": {0, func(s lock.Store, key string) error { _, err := s.Claim(ctx, key, claim("b")); return err }},
		"renew": {0, func(s lock.Store, key string) error { _, err := s.Renew(ctx, key, claim("a")); return err }},
		"get":   {0, func(s lock.Store, key string) error { _, err := s.Get(ctx, key); return err }},
		"release": {1, func(s lock.Store, key string) error {
			_, err := s.Release(ctx, key, lock.Claim{Token: "a"})
			return err
		}},
		"foreign release": {0, func(s lock.Store, key string) error {
			_, err := s.Release(ctx, key, lock.Claim{Token: "b"})
			return err
		}},
		"second release": {1, func(s lock.Store, key string) error {
			_, _ = s.Release(ctx, key, lock.Claim{Token: "a"})
			_, err := s.Release(ctx, key, lock.Claim{Token: "a"})
			return err
		}},
		"second settle": {1, func(s lock.Store, key string) error {
			_, _ = s.Settle(ctx, key, lock.Claim{Token: "a"}, nil, time.Minute)
			_, err := s.Settle(ctx, key, lock.Claim{Token: "a"}, nil, time.Minute)
			return err
		}},
		"foreign settle": {0, func(s lock.Store, key string) error {
			_, err := s.Settle(ctx, key, lock.Claim{Token: "b"}, nil, time.Minute)
			return err
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
				require.NoError(t, tt.do(s, keyFor(t)))
				require.NoError(t, client.Publish(ctx, nameOf(t), "end").Err())
				got := 0
				for {
					message, err := sub.ReceiveTimeout(ctx, patience)
					require.NoError(t, err)
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

// A script that publishes passes where a script that needs memory does not.
func TestPublishingOutOfMemory(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := notifying(t, srv.Client(t))
	wakes := make(map[string]<-chan struct{})
	for key, c := range map[string]lock.Claim{"released": claim("a"), "fenced": fenced("a"), "settled": claim("a")} {
		take(t, s, key, c)
		wake, stop := s.Watch(key)
		defer stop()
		hears(t, wake) // Redis 8 refuses to subscribe without memory
		wakes[key] = wake
	}
	srv.Do(t, "CONFIG", "SET", "maxmemory", "1")
	for key, wake := range wakes {
		if key == "settled" {
			ok, err := s.Settle(t.Context(), key, lock.Claim{Token: "a"}, []byte("receipt"), time.Minute)
			require.NoError(t, err)
			require.True(t, ok)
		} else {
			release(t, s, key, "a")
		}
		hears(t, wake)
	}
	_, err := s.Claim(t.Context(), "free", claim("a"))
	requireNotApplied(t, err, "OOM")
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

// A user without the permission to publish can end its own entries, and Check
// names the missing permission.
func TestNotificationsWithoutPermission(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	as := func(t *testing.T, user string, rules ...string) *redisstore.Store {
		t.Helper()
		args := []any{"ACL", "SETUSER", user, "on", ">p", "resetchannels"}
		for _, rule := range append(strings.Fields(failure.MinimalACL), rules...) {
			args = append(args, rule)
		}
		srv.Do(t, args...)
		client := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: user, Password: "p"})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		return notifying(t, client)
	}

	s := as(t, "none")
	wake, stop := s.Watch("k")
	defer stop()
	for _, c := range []lock.Claim{claim("a"), fenced("b")} {
		take(t, s, "k", c)
		release(t, s, "k", c.Token)
	}
	take(t, s, "k", claim("c"))
	ok, err := s.Settle(t.Context(), "k", lock.Claim{Token: "c"}, []byte("receipt"), time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	e, err := s.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "receipt", string(e.Receipt))
	require.Empty(t, wake)

	words := strings.Fields(failure.NotifyACL)
	for i, word := range words {
		without := append(append([]string{}, words[:i]...), words[i+1:]...)
		err := as(t, "without"+word, without...).Check(timeout(t, patience))
		require.ErrorContains(t, err, "NOPERM", word)
		require.ErrorContains(t, err, failure.NotifyACL)
		want := strings.ToUpper(strings.TrimPrefix(word, "+"))
		if word == "&latch:*" {
			want = "PUBLISH in a script on channels with the prefix"
		}
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n")
	}
	require.NoError(t, as(t, "all", words...).Check(timeout(t, patience)))

	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	require.Contains(t, string(doc), failure.NotifyACL+"\n")
}

// channels lists the channels with a subscriber.
func channels(tb testing.TB, srv *redistest.Server) []any {
	tb.Helper()
	all, ok := srv.Do(tb, "PUBSUB", "CHANNELS").([]any)
	require.True(tb, ok)
	return all
}
