package redisstore_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// listeners returns the number of connections that subscribe.
func listeners(tb testing.TB, srv *redistest.Server) int {
	tb.Helper()
	text, _ := srv.Do(tb, "CLIENT", "LIST", "TYPE", "pubsub").(string)
	return strings.Count(text, "\n")
}

func TestWatchesShareOneConnectionForAsLongAsThereAreAny(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := notifying(t, srv.Client(t))
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
	s := notifying(t, redistest.Shared(t).Client(t))
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
	client := srv.Client(t)
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
			other := notifying(t, srv.Client(t))
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
