package redisstore_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// connect returns a store that waits for an answer for so long.
type connect func(read time.Duration) *redisstore.Store

// ways are the ways to reach Redis through a proxy, with default settings except for the timeouts.
func ways(t *testing.T) map[string]func(t *testing.T) (connect, *respproxy.Proxy) {
	t.Helper()
	return map[string]func(t *testing.T) (connect, *respproxy.Proxy){
		"client": func(t *testing.T) (connect, *respproxy.Proxy) {
			p := respproxy.Start(t, redistest.Start(t).Addr())
			return func(read time.Duration) *redisstore.Store {
				return overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = read, patience })
			}, p
		},
		"a client's own connections": func(t *testing.T) (connect, *respproxy.Proxy) {
			p := respproxy.Start(t, redistest.Start(t).Addr())
			return func(read time.Duration) *redisstore.Store {
				return overClient(t, p.Addr(), func(o *redis.Options) {
					throughTheClient(o)
					o.ReadTimeout, o.WriteTimeout = read, patience
				})
			}, p
		},
		"cluster client": func(t *testing.T) (connect, *respproxy.Proxy) {
			var p *respproxy.Proxy
			cluster := redistest.StartCluster(t, 1, func(_ int, addr string) int {
				p = respproxy.Start(t, addr)
				return p.Port()
			})
			return func(read time.Duration) *redisstore.Store {
				client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ReadTimeout: read, WriteTimeout: patience})
				t.Cleanup(func() { require.NoError(t, client.Close()) })
				return redisstore.New(client)
			}, p
		},
		"open": func(t *testing.T) (connect, *respproxy.Proxy) {
			p := respproxy.Start(t, redistest.Start(t).Addr())
			return func(read time.Duration) *redisstore.Store {
				return open(t, p.URL()+"?read_timeout="+read.String(), redisstore.WithoutCheck())
			}, p
		},
	}
}

// A lost reply leaves the outcome unknown, and the same call again finds it.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for name, start := range ways(t) {
		parallel.Run(t, name, func(t *testing.T) {
			to, p := start(t)
			// Only the call that will hang has a short time-out.
			s, short := to(patience), to(300*time.Millisecond)
			key := keyFor(t)
			require.NoError(t, operations["get"](t.Context(), s, key)) // connections and scripts are there
			for _, op := range []string{"claim", "renew", "settle", "release"} {
				for end, want := range map[respproxy.End]string{
					respproxy.Close: "connection", respproxy.Reset: "connection", respproxy.Hang: "silent",
				} {
					for _, prepare := range []string{"claim", "renew", "settle"} { // so that all scripts are loaded
						require.NoError(t, operations[prepare](t.Context(), s, key))
					}
					_, err := s.Forget(t.Context(), key, "tok")
					require.NoError(t, err)
					if op != "claim" {
						take(t, s, key, claim("tok"))
					}
					verb := map[bool]string{true: "set", false: "evalsha"}[op == "claim"]
					// Every reply is lost, so that repeats by the client are seen.
					lost := p.On(respproxy.Match{Name: verb, Key: nameOf(t)}, respproxy.Swallow(end))
					loses, ctx := s, timeout(t, patience)
					if end == respproxy.Hang {
						loses, ctx = short, t.Context() // without a deadline, the client's time-out counts
					}
					requireUnknown(t, untilSent(t, func() error { return operations[op](ctx, loses, key) }), want)
					lost.WaitLanded(t)
					require.Equal(t, 1, lost.Hits(), "%s was sent more than once", op)
					lost.Remove()

					if op == "claim" {
						require.Zero(t, take(t, s, key, claim("tok")).Left, "found, not taken anew")
					}
					_, err = s.Forget(t.Context(), key, "tok")
					require.NoError(t, err)
				}
			}
		})
	}
}

// The client repeats a command, finds its own entry, and mistakes it for the entry of another caller.
func TestPlainSetNXRepeatsAndDeniesItself(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	client := clientOf(t, &redis.Options{Addr: p.Addr()})
	lost := p.On(respproxy.Match{Name: "set", Count: 1}, respproxy.Swallow(respproxy.Close))
	taken, err := client.SetNX(t.Context(), keyFor(t), "tok", time.Minute).Result()
	lost.Wait(t, 1)
	require.NoError(t, err)
	require.False(t, taken)
	require.Equal(t, "tok", client.Get(t.Context(), keyFor(t)).Val())
}

// A command that a wrapper repeats was sent, even if the repeat is a script that another server does
// not know.
func TestRepeatingWrapperAndAnUnknownScript(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	client := clientOf(t, &redis.Options{Addr: p.Addr()})
	s := open(t, srv.URL())
	take(t, s, keyFor(t), claim("a"))
	must.No(t)(s.Settle(timeout(t, patience), keyFor(t), lock.Claim{Token: "other"}, nil, time.Hour)) // so that there is the script
	p.On(respproxy.Match{Name: "evalsha", Count: 1}, respproxy.Swallow(respproxy.Close))
	p.On(respproxy.Match{Name: "evalsha"}, respproxy.ReplyError("NOSCRIPT No matching script. Please use EVAL."))
	p.On(respproxy.Match{Name: "eval"}, respproxy.ReplyError("READONLY You can't write against a read only replica."))
	_, err := redisstore.New(repeatingWrapper{client}).Settle(timeout(t, patience), keyFor(t), lock.Claim{Token: "a"}, nil, time.Hour)
	requireUnknown(t, err, "READONLY")
	require.Equal(t, lock.Settled, must.Entry(t)(s.Get(timeout(t, patience), keyFor(t))).State)
}

// repeatingWrapper repeats a command that got no answer.
type repeatingWrapper struct{ redis.UniversalClient }

func (w repeatingWrapper) Process(ctx context.Context, cmd redis.Cmder) error {
	err := w.UniversalClient.Process(ctx, cmd)
	if reply := redis.Error(nil); err == nil || errors.As(err, &reply) {
		return err
	}
	return w.UniversalClient.Process(ctx, cmd)
}

// Connections that a proxy resets when it restarts, or an operator, cost a large receipt none of its replays.
func TestLargeReceiptOutlastsResets(t *testing.T) {
	t.Parallel()
	for name, match := range map[string]respproxy.Match{
		"of the receipt":             {Name: "exec", Skip: 1, Count: 1},
		"of the reads before it":     {Name: "exec", Count: 2},
		"while connections are made": {Name: "ping", Count: 2},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			take(t, overClient(t, redistest.Shared(t).Addr(), nil), keyFor(t), whole("a"))
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			p.On(match, respproxy.Drop(respproxy.Reset))
			s := overClient(t, p.Addr(), nil)
			require.NoError(t, untilSent(t, func() error {
				_, err := s.Settle(timeout(t, patience), keyFor(t), lock.Claim{Token: "a"}, large, time.Hour)
				require.NotErrorIs(t, err, lock.ErrFull)
				return err
			}))
			require.Equal(t, large, must.Entry(t)(s.Get(timeout(t, patience), keyFor(t))).Receipt)
		})
	}
}

// behind are the ways to a store behind a proxy. A store that sends each command through a client waits
// for an answer for so long.
var behind = map[string]func(t *testing.T, p *respproxy.Proxy, read time.Duration) *redisstore.Store{
	"direct": func(t *testing.T, p *respproxy.Proxy, _ time.Duration) *redisstore.Store {
		return open(t, p.URL())
	},
	"not direct": func(t *testing.T, p *respproxy.Proxy, read time.Duration) *redisstore.Store {
		return redisstore.New(unknownClient{clientOf(t, &redis.Options{Addr: p.Addr(), ReadTimeout: read})})
	},
}

// The connection of a claim that was left behind ends without an answer. The claim may land at any time within
// MaxLag, so one removal at the end of the connection is not enough.
func TestClaimThatWasLeftBehindLandsLate(t *testing.T) {
	t.Parallel()
	const readTimeout, budget = 300 * time.Millisecond, 2 * time.Second
	for name, start := range behind {
		parallel.Run(t, name, func(t *testing.T) {
			srv := redistest.Start(t)
			p := respproxy.Start(t, srv.Addr())
			l := lock.New(start(t, p, readTimeout), lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(budget),
				lock.WithLease(10*time.Minute))
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
