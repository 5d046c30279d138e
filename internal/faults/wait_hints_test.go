package faults_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

const waitersEach = 25

func openNotifying(t *testing.T, url string) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(t.Context(), url, redisstore.WithNotifications())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// longestPoll is between two claims of a waiter whose notification is lost.
const longestPoll = 2001 * time.Millisecond

// Whatever becomes of a notification, its loss costs one poll.
func TestLostNotifications(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "measures polls in real time")
	t.Parallel()
	for name, tt := range map[string]struct {
		lose func(proxy *respproxy.Proxy) // nil: the process that releases does not publish
	}{
		"not published": {},
		"not subscribed": {func(proxy *respproxy.Proxy) {
			proxy.On(respproxy.Match{Name: "subscribe"}, respproxy.Drop(respproxy.Hang))
		}},
		"subscription refused": {func(proxy *respproxy.Proxy) {
			proxy.On(respproxy.Match{Name: "subscribe"}, respproxy.ReplyError("NOPERM this user has no permissions"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := respproxy.Start(t, server.Addr())
			there, here := openNotifying(t, server.URL()), openNotifying(t, proxy.URL())
			if tt.lose == nil {
				there = open(t, server.URL())
			} else {
				tt.lose(proxy)
			}
			holder := locker(t, there, lock.WithBudget(patient))
			waiter := locker(t, here, lock.WithBudget(patient), lock.WithWait(time.Minute))
			var longest time.Duration
			for range 5 {
				held, err := holder.Acquire(t.Context(), "user=42")
				require.NoError(t, err)
				claimed := proxy.On(respproxy.Match{Name: "set", Key: "user=42"}, respproxy.Action{})
				released := make(chan time.Time, 1)
				go func() {
					claimed.Wait(t, 10) // so that its pauses are as long as they get
					began := time.Now()
					_ = held.Release(context.Background())
					released <- began
				}()
				e, err := waiter.Acquire(t.Context(), "user=42")
				granted := time.Now()
				require.NoError(t, err)
				longest = max(longest, granted.Sub(<-released))
				claimed.Remove()
				require.NoError(t, e.Release(t.Context()))
			}
			t.Logf("granted %v after the release at most", longest)
			require.Less(t, longest, longestPoll+2*slack, "of a minute")
		})
	}
}

// A client that may publish can publish as much as it likes.
func TestFloodOfNotifications(t *testing.T) {
	t.Parallel()
	const messages = 20_000
	server := redistest.Start(t)
	proxy := respproxy.Start(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	store := redisstore.New(client, redisstore.WithNotifications())
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	held, err := locker(t, open(t, server.URL()), lock.WithBudget(patient)).Acquire(t.Context(), "user=42")
	require.NoError(t, err)
	began := time.Now()
	claimed := proxy.On(respproxy.Match{Name: "set", Key: "user=42"}, respproxy.Action{})
	waiter := locker(t, store, lock.WithBudget(patient), lock.WithWait(time.Minute))
	granted := make(chan error, 1)
	go func() {
		granted <- waiter.Do(context.Background(), "user=42", func(context.Context) error { return nil })
	}()
	claimed.Wait(t, 2)
	publisher, payload := server.Client(t), strings.Repeat("x", 100)
	for range messages / 100 {
		pipe := publisher.Pipeline()
		for range 100 {
			pipe.Publish(t.Context(), "latch:lock:user=42", payload)
		}
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
	}
	n, took := claimed.Hits(), time.Since(began)
	t.Logf("%d messages within %v led to %d claims", messages, took, n)
	require.LessOrEqual(t, n, int(took/(5*time.Millisecond))+20)
	require.NoError(t, held.Release(t.Context()))
	require.NoError(t, <-granted)
}

// Waiters that are canceled leave at once, and leave nothing behind.
func TestCanceledWaitersLeave(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	there, here := open(t, server.URL()), openNotifying(t, server.URL())
	held, err := locker(t, there, lock.WithBudget(patient)).Acquire(t.Context(), "user=42")
	require.NoError(t, err)
	l := locker(t, here, lock.WithBudget(patient), lock.WithWait(5*time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error)
	for range waitersEach {
		go func() { _, err := l.Acquire(ctx, "user=42"); results <- err }()
	}
	subscribed := func() bool {
		channels, _ := server.Do(t, "PUBSUB", "CHANNELS").([]any)
		return len(channels) > 0
	}
	require.Eventually(t, subscribed, 10*time.Second, 5*time.Millisecond)
	cancel()
	canceled := time.Now()
	for range waitersEach {
		require.ErrorIs(t, <-results, context.Canceled)
	}
	require.Less(t, time.Since(canceled), 5*slack, "of five minutes")
	require.Eventually(t, func() bool { return !subscribed() }, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, held.Release(t.Context()))
	require.NoError(t, left(t, server, 5*slack))
}
