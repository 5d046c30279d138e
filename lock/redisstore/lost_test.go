package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// connect returns a store that waits for an answer for so long.
type connect func(read time.Duration) *redisstore.Store

// stores are the ways to reach Redis through a proxy, with default settings except for the
// timeouts.
func stores(t *testing.T) map[string]func(t *testing.T) (connect, *respproxy.Proxy) {
	t.Helper()
	return map[string]func(t *testing.T) (connect, *respproxy.Proxy){
		"client": func(t *testing.T) (connect, *respproxy.Proxy) {
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			return func(read time.Duration) *redisstore.Store {
				return overClient(t, p.Addr(), func(o *redis.Options) {
					o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = read, patience, patience
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
				client := redis.NewClusterClient(&redis.ClusterOptions{
					Addrs: cluster.Addrs(), ReadTimeout: read, WriteTimeout: patience, PoolTimeout: patience,
				})
				t.Cleanup(func() { require.NoError(t, client.Close()) })
				return redisstore.New(client)
			}, p
		},
		"open": func(t *testing.T) (connect, *respproxy.Proxy) {
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			return func(read time.Duration) *redisstore.Store {
				s, err := redisstore.Open(t.Context(), withLongTimeouts(p.URL()+"?read_timeout="+read.String()), redisstore.WithoutCheck())
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, s.Close()) })
				return s
			}, p
		},
	}
}

// A lost reply leaves the outcome unknown, even if the client would repeat the
// command. The same call again finds the outcome.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for name, start := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
					loses := s
					if end == respproxy.Hang {
						loses = short
					}
					requireUnknown(t, untilSent(t, func() error { return operations[op](timeout(t, patience), loses, key) }), want)
					lost.WaitLanded(t)
					require.Equal(t, 1, lost.Hits(), "%s was sent more than once", op)
					lost.Remove()

					if op == "claim" {
						e := take(t, s, key, claim("tok"))
						require.Zero(t, e.Left, "found, not taken anew")
					}
					_, err = s.Forget(t.Context(), key, "tok")
					require.NoError(t, err)
				}
			}
		})
	}
}

// The client repeats a command that may be repeated: it finds its own entry,
// and mistakes it for the entry of another caller.
func TestPlainSetNXRepeatsAndDeniesItself(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	lost := p.On(respproxy.Match{Name: "set", Count: 1}, respproxy.Swallow(respproxy.Close))
	taken, err := client.SetNX(t.Context(), keyFor(t), "tok", time.Minute).Result()
	lost.Wait(t, 1)
	require.NoError(t, err)
	require.False(t, taken)
	require.Equal(t, "tok", client.Get(t.Context(), keyFor(t)).Val())
}

// An ended context also ends commands that wait for a connection.
func TestNothingIsWrittenAfterTheContext(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)

	t.Run("ended before", func(t *testing.T) {
		t.Parallel()
		s := open(t, srv.URL())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, op := range operations {
			err := op(ctx, s, keyFor(t))
			requireNotApplied(t, err, "cancelled")
			require.ErrorIs(t, err, context.Canceled)
		}
	})

	// whileConnecting makes a call over a client that obeys no contexts, whose time is
	// over during the greeting.
	whileConnecting := func(t *testing.T, first string, call func(context.Context, *redis.Client) error) (*respproxy.Proxy, error) {
		t.Helper()
		p := respproxy.Start(t, srv.Addr())
		greeting := p.On(respproxy.Match{Name: first}, respproxy.Hold())
		client := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: patience})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		ctx := timeout(t, 200*time.Millisecond)
		called := make(chan error, 1)
		go func() { called <- call(ctx, client) }()
		greeting.Wait(t, 1)
		<-ctx.Done()
		<-timeout(t, 100*time.Millisecond).Done() // callers come back a moment later; the twin does not
		greeting.Remove()
		greeting.Deliver(t)
		return p, <-called
	}
	for name, op := range operations {
		t.Run("ended while connecting/"+name, func(t *testing.T) {
			t.Parallel()
			key := keyFor(t)
			p, err := whileConnecting(t, "ping", func(ctx context.Context, client *redis.Client) error {
				s := redisstore.New(client)
				defer func() { _ = s.Close() }()
				return op(ctx, s, key)
			})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, "silent", class(err))
			require.Zero(t, p.Commands("set")+p.Commands("eval")+p.Commands("evalsha"))
		})
	}
	t.Run("an ordinary command is written", func(t *testing.T) {
		t.Parallel()
		key := keyFor(t)
		p, _ := whileConnecting(t, "hello", func(ctx context.Context, client *redis.Client) error {
			return client.SetNX(ctx, key, "x", time.Minute).Err()
		})
		require.Equal(t, 1, p.Commands("set"))
	})
}

// If a wrapper repeats a failed command, the last answer does not show the outcome of the first
// send.
func TestRepeatingWrapper(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	p.On(respproxy.Match{Name: "set", Count: 1}, respproxy.Swallow(respproxy.Close))
	p.On(respproxy.Match{Name: "set"}, respproxy.ReplyError("READONLY You can't write against a read only replica."))
	_, err := redisstore.New(repeatingWrapper{client}).Claim(timeout(t, patience), keyFor(t), claim("a"))
	requireUnknown(t, err, "READONLY")
	require.Len(t, srv.Keys(t, nameOf(t)), 1)
}

// A command that a wrapper repeats was sent, even if the repeat is a script that another server does
// not know.
func TestRepeatingWrapperAndAnUnknownScript(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	s := open(t, srv.URL())
	take(t, s, keyFor(t), claim("a"))
	ok, err := s.Settle(timeout(t, patience), keyFor(t), lock.Claim{Token: "other"}, nil, time.Hour) // so that there is the script
	require.NoError(t, err)
	require.False(t, ok)
	p.On(respproxy.Match{Name: "evalsha", Count: 1}, respproxy.Swallow(respproxy.Close))
	p.On(respproxy.Match{Name: "evalsha"}, respproxy.ReplyError("NOSCRIPT No matching script. Please use EVAL."))
	p.On(respproxy.Match{Name: "eval"}, respproxy.ReplyError("READONLY You can't write against a read only replica."))
	_, err = redisstore.New(repeatingWrapper{client}).Settle(timeout(t, patience), keyFor(t), lock.Claim{Token: "a"}, nil, time.Hour)
	requireUnknown(t, err, "READONLY")
	e, err := s.Get(timeout(t, patience), keyFor(t))
	require.NoError(t, err)
	require.Equal(t, lock.Settled, e.State)
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			take(t, overClient(t, redistest.Shared(t).Addr(), nil), keyFor(t), whole("a"))
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			p.On(match, respproxy.Drop(respproxy.Reset))
			s := overClient(t, p.Addr(), nil)
			require.NoError(t, untilSent(t, func() error {
				_, err := s.Settle(timeout(t, patience), keyFor(t), lock.Claim{Token: "a"}, large, time.Hour)
				require.NotErrorIs(t, err, lock.ErrFull)
				return err
			}))
			e, err := s.Get(timeout(t, patience), keyFor(t))
			require.NoError(t, err)
			require.Equal(t, large, e.Receipt)
		})
	}
}
