package redisstore_test

import (
	"context"
	"log/slog"
	"sync/atomic"
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

// notDirect is a store that sends each command through a client, and waits for an answer for so long.
func notDirect(t *testing.T, addr string, read time.Duration) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: read})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return redisstore.New(passing{client, new(atomic.Int32)})
}

// A call that takes longer than its caller waits for one send, but less than the
// budget, costs no connection: the command that it left behind is followed until
// it is answered.
func TestSlowCallsKeepTheirConnections(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick|testmain.NewerServers, "makes rounds of calls of 2 s")
	t.Parallel()
	const budget, rounds = 6 * time.Second, 4
	const late = budget/3 + 100*time.Millisecond
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	connections := p.On(respproxy.Match{Name: "hello"}, respproxy.Action{})
	s := notDirect(t, p.Addr(), 20*time.Second)
	l := lock.New(s, lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(budget))
	round := func() {
		slow := p.On(respproxy.Match{Name: "set", Key: nameOf(t), Count: 1}, respproxy.DelayReply(late))
		require.NoError(t, l.Do(t.Context(), keyFor(t), func(context.Context) error { return nil }))
		slow.WaitLanded(t)
		require.Eventually(t, func() bool { return l.Stats().Backlog == 0 }, patience, time.Millisecond)
	}
	round() // there is a connection for the late one now, and another
	before := connections.Hits()
	for range rounds {
		round()
	}
	require.Less(t, connections.Hits()-before, rounds/2)
	require.NoError(t, l.Close(timeout(t, patience)), "nothing is left behind")
	require.Empty(t, redistest.Shared(t).Keys(t, nameOf(t)))
}

// A claim whose first send is in flight while the second one is granted, used and released lands
// late. Its entry is removed.
func TestLateSendOfAReleasedLease(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T, *respproxy.Proxy) *redisstore.Store{
		"direct":     func(t *testing.T, p *respproxy.Proxy) *redisstore.Store { return open(t, p.URL()) },
		"not direct": func(t *testing.T, p *respproxy.Proxy) *redisstore.Store { return notDirect(t, p.Addr(), patience) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			p := respproxy.Start(t, srv.Addr())
			var reaped atomic.Int32
			l := lock.New(start(t, p), lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(300*time.Millisecond),
				lock.WithLease(10*time.Minute), lock.WithObserver(func(_ context.Context, e lock.Event) {
					if e.Kind == lock.EventReaped {
						reaped.Add(1)
					}
				}))
			held := p.On(respproxy.Match{Name: "set", Count: 1}, respproxy.Hold())
			require.Eventually(t, func() bool { // as soon as the machine lets the second send through in time
				e, err := l.Acquire(t.Context(), keyFor(t))
				return err == nil && e.Release(t.Context()) == nil
			}, patience, time.Millisecond)
			require.Equal(t, 1, held.Deliver(t))
			held.WaitLanded(t)
			require.Eventually(t, func() bool { // on a busy machine, the first orphans are of earlier attempts
				return reaped.Load() > 0 && len(srv.Keys(t, nameOf(t))) == 0
			}, patience, 5*time.Millisecond, "an orphan")
			require.NoError(t, l.Close(timeout(t, patience)))
			require.Empty(t, srv.Keys(t))
		})
	}
}

// A caller that leaves while its claim is in flight leaves it behind. If its connection ends without
// an answer, the claim may land at any time within MaxLag, and the clean-up goes on until then: one
// removal at the end of the connection is not enough.
func TestClaimThatWasLeftBehindLandsLate(t *testing.T) {
	t.Parallel()
	const readTimeout, budget = 300 * time.Millisecond, 2 * time.Second
	for name, start := range map[string]func(*testing.T, *respproxy.Proxy) *redisstore.Store{
		"direct":     func(t *testing.T, p *respproxy.Proxy) *redisstore.Store { return open(t, p.URL()) },
		"not direct": func(t *testing.T, p *respproxy.Proxy) *redisstore.Store { return notDirect(t, p.Addr(), readTimeout) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			p := respproxy.Start(t, srv.Addr())
			l := lock.New(start(t, p), lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(budget), lock.WithLease(10*time.Minute))
			t.Cleanup(func() { require.NoError(t, l.Close(timeout(t, patience))) })

			held := p.On(respproxy.Match{Name: "set", Key: nameOf(t)}, respproxy.Hold())
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				held.Wait(t, 1)
				leave()
			}()
			_, err := l.Acquire(ctx, keyFor(t))
			require.ErrorIs(t, err, lock.ErrUnknown)
			removals := p.On(respproxy.Match{Name: "evalsha", Key: nameOf(t)}, respproxy.Action{})
			removals.Wait(t, 2) // the connection has ended, and there were two looks
			removals.WaitLanded(t)
			require.Empty(t, srv.Keys(t))
			require.Equal(t, 1, held.Deliver(t))
			held.WaitLanded(t)
			require.Eventually(t, func() bool { return len(srv.Keys(t)) == 0 }, patience, 20*time.Millisecond, "long before its lease ends")
		})
	}
}
