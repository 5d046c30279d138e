package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// through returns a dialer that connects to p for any address.
func through(p *respproxy.Proxy) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", p.Addr())
	}
}

// hookOf is a hook that runs functions before a step of the client, and after it.
type hookOf struct{ dial, before, after func() }

func runIf(f func()) {
	if f != nil {
		f()
	}
}

func (h hookOf) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		runIf(h.dial)
		return next(ctx, network, addr)
	}
}

func (h hookOf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		runIf(h.before)
		defer runIf(h.after)
		return next(ctx, cmd)
	}
}

func (h hookOf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		runIf(h.before)
		defer runIf(h.after)
		return next(ctx, cmds)
	}
}

// limiterOf is a Limiter that runs functions.
type limiterOf struct{ allow, report func() }

func (l limiterOf) Allow() error         { runIf(l.allow); return nil }
func (l limiterOf) ReportResult(_ error) { runIf(l.report) }

// subscription is a StreamingCredentialsProvider that runs a function.
type subscription func()

func (s subscription) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	s()
	return auth.NewBasicCredentials("", ""), func() error { return nil }, nil
}

// throughTheClient makes the store send its commands through the client, and its hooks.
func throughTheClient(o *redis.Options) {
	o.OnConnect = func(context.Context, *redis.Conn) error { return nil }
}

// userCode has the places where a client runs code of its user, here pass.
var userCode = map[string]func(o *redis.Options, pass func()) redis.Hook{
	"Dialer": func(o *redis.Options, pass func()) redis.Hook {
		before := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			pass()
			return before(ctx, network, addr)
		}
		return nil
	},
	"CredentialsProvider": func(o *redis.Options, pass func()) redis.Hook {
		o.CredentialsProvider = func() (user, password string) { pass(); return "", "" }
		return nil
	},
	"CredentialsProviderContext": func(o *redis.Options, pass func()) redis.Hook {
		o.CredentialsProviderContext = func(context.Context) (user, password string, err error) { pass(); return "", "", nil }
		return nil
	},
	"StreamingCredentialsProvider": func(o *redis.Options, pass func()) redis.Hook {
		o.StreamingCredentialsProvider = subscription(pass)
		return nil
	},
	"OnConnect": func(o *redis.Options, pass func()) redis.Hook {
		o.OnConnect = func(context.Context, *redis.Conn) error { pass(); return nil }
		return nil
	},
	"Limiter.Allow":        func(o *redis.Options, pass func()) redis.Hook { o.Limiter = limiterOf{allow: pass}; return nil },
	"Limiter.ReportResult": func(o *redis.Options, pass func()) redis.Hook { o.Limiter = limiterOf{report: pass}; return nil },
	"hook, before":         func(o *redis.Options, pass func()) redis.Hook { throughTheClient(o); return hookOf{before: pass} },
	"hook, after":          func(o *redis.Options, pass func()) redis.Hook { throughTheClient(o); return hookOf{after: pass} },
	"dial hook":            func(o *redis.Options, pass func()) redis.Hook { throughTheClient(o); return hookOf{dial: pass} },
}

// silence leaves it to the server to hang, for clients with these settings.
var silence = map[string]func(o *redis.Options){
	"silence":              func(*redis.Options) {},
	"silence, timeouts -1": func(o *redis.Options) { o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Minute, -1, -1 },
	"silence, timeouts -2": func(o *redis.Options) { o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Minute, -2, -2 },
	"silence, through a client without timeouts": func(o *redis.Options) {
		throughTheClient(o)
		o.ReadTimeout, o.WriteTimeout, o.PoolSize = -1, -1, 1
	},
}

// Every call ends with its context, whatever hangs, and the store serves again afterwards. The twin is a command of
// the client, which does not return.
func TestCallsEndWhateverHangs(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick|testmain.NewerServers, "plays each slow part with each kind of client")
	t.Parallel()
	one, node := redistest.Shared(t).Addr(), redistest.StartCluster(t, 1, nil).Addrs()[0]
	parts := maps.Clone(userCode)
	for name, set := range silence {
		parts[name] = func(o *redis.Options, _ func()) redis.Hook { set(o); return nil }
	}
	for part, set := range parts {
		for _, cluster := range []bool{false, true} {
			for _, cold := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, cluster %v, cold %v", part, cluster, cold), func(t *testing.T) {
					t.Parallel()
					server := map[bool]string{false: one, true: node}[cluster]
					p := respproxy.Start(t, server)
					hang, lifted := make(chan struct{}), make(chan struct{})
					o := &redis.Options{Addr: server, Dialer: through(p)}
					hook := set(o, func() {
						select {
						case <-hang:
							<-lifted
						default:
						}
					})
					client := hookedClient(o, cluster, hook)
					s := redisstore.New(client)
					key := keyFor(t)
					if !cold {
						take(t, s, key, claim("tok"))
					}
					if strings.HasPrefix(part, "silence") {
						p.Freeze()
					} else {
						p.Down() // what hangs may do so while connections are made
						p.Up(t)
					}
					close(hang)

					twin := make(chan error, 1)
					go func() {
						<-timeout(t, 10*time.Millisecond).Done()
						twin <- client.Get(timeout(t, 100*time.Millisecond), "twin").Err()
					}()
					var calls sync.WaitGroup
					for range 8 {
						for name, op := range operations {
							calls.Go(func() {
								assert.Error(t, op(timeout(t, 200*time.Millisecond), s, key), "%s passes what hangs", name)
							})
						}
					}
					calls.Go(func() { _ = s.Check(timeout(t, 200*time.Millisecond)) })
					calls.Go(func() {
						for _, err := range s.List(timeout(t, 200*time.Millisecond)) {
							if err != nil {
								return
							}
						}
					})
					calls.Wait() // without an end, if one of them waits for what hangs
					if !cluster && (part == "Limiter.Allow" || part == "hook, before" || part == "silence, timeouts -1") {
						require.Empty(t, twin, "the client returns")
					}
					close(lifted)
					p.Thaw()
					<-twin
					require.Eventually(t, func() bool {
						_, err := s.Claim(timeout(t, time.Second), key+"&2", claim("a"))
						return err == nil
					}, patience, time.Millisecond)
					require.NoError(t, s.Close())
					require.NoError(t, client.Close())
				})
			}
		}
	}
}

// hookedClient returns a client of one server, or of the Cluster that the server is in.
func hookedClient(o *redis.Options, cluster bool, hook redis.Hook) redis.UniversalClient {
	hooked := func(c *redis.Client) *redis.Client {
		if hook != nil {
			c.AddHook(hook)
		}
		return c
	}
	if !cluster {
		return hooked(redis.NewClient(o))
	}
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{o.Addr}, Dialer: o.Dialer, OnConnect: o.OnConnect, CredentialsProvider: o.CredentialsProvider,
		CredentialsProviderContext: o.CredentialsProviderContext, StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, PoolSize: o.PoolSize,
		NewClient: func(own *redis.Options) *redis.Client {
			own.Limiter = o.Limiter
			return hooked(redis.NewClient(own))
		},
	})
}

// A bug in a user's hook of the client fails the calls that run it, and leaves no key taken.
func TestPanicsOfAClientsUser(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts a server for each place and kind of panic")
	t.Parallel()
	for where, place := range userCode {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			var left atomic.Int32 // number of further panics
			o := &redis.Options{Addr: srv.Addr(), Dialer: new(net.Dialer).DialContext}
			hook := place(o, func() {
				if left.Add(-1) >= 0 {
					panic("a hook's")
				}
			})
			client := hookedClient(o, false, hook)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			s := notifying(t, client)
			l := lock.New(s, lock.WithLease(2*time.Second), lock.WithBudget(time.Second), lock.WithLogger(slog.New(slog.DiscardHandler)))
			t.Cleanup(func() { require.NoError(t, l.Close(timeout(t, patience))) })
			// Connections that are gone are made anew, which is where half of the code runs.
			panicking := func(times int32) {
				srv.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				srv.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
				left.Store(times)
			}

			panicking(1)
			e, err := l.Acquire(t.Context(), "k")
			require.NoError(t, err, "the same claim again finds out")
			panicking(2)
			require.Eventually(t, func() bool { return left.Load() <= 0 }, patience, 5*time.Millisecond, "a renewal")
			time.Sleep(2 * time.Second)
			require.NoError(t, e.Context().Err())
			panicking(1)
			require.NoError(t, e.Release(t.Context()))

			panicking(4)
			if e, err = l.Acquire(t.Context(), "k"); err == nil {
				require.NoError(t, e.Release(t.Context()))
			}
			require.Eventually(t, func() bool { return len(srv.Keys(t)) == 0 }, patience, 10*time.Millisecond, "it is cleaned up")
			left.Store(0)

			other := notifying(t, redistest.Client(t, srv))
			wake, stop := s.Watch("k")
			defer stop()
			if o.OnConnect != nil || o.Limiter != nil || o.StreamingCredentialsProvider != nil {
				require.Nil(t, wake, "the client sends every command itself")
				return
			}
			hears(t, wake)
			panicking(2)
			require.Eventually(t, func() bool {
				take(t, other, "k", claim("a"))
				release(t, other, "k", "a")
				return heard(wake, 100*time.Millisecond)
			}, patience, time.Millisecond, "it listens again")
		})
	}
}
