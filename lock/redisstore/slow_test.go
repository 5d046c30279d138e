package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// through returns a dialer that calls first, and then connects to p for any address.
func through(p *respproxy.Proxy, first dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if first != nil {
			if _, err := first(ctx, network, addr); err != nil {
				return nil, err
			}
		}
		return new(net.Dialer).DialContext(ctx, "tcp", p.Addr())
	}
}

// hookOf is a hook that runs functions before a step of the client, and after it.
type hookOf struct{ command, pipeline, after func() }

func runIf(f func()) {
	if f != nil {
		f()
	}
}

func (h hookOf) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hookOf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		runIf(h.command)
		defer runIf(h.after)
		return next(ctx, cmd)
	}
}

func (h hookOf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		runIf(h.pipeline)
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

// slowParts make a part of a client hang in pass. The first ones leave that to the server.
var slowParts = map[string]func(o *redis.Options, pass func()) redis.Hook{
	"silence": func(*redis.Options, func()) redis.Hook { return nil },
	"silence, timeouts -1": func(o *redis.Options, _ func()) redis.Hook {
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Minute, -1, -1
		return nil
	},
	"silence, timeouts -2": func(o *redis.Options, _ func()) redis.Hook {
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Minute, -2, -2
		return nil
	},
	"silence, through a client without timeouts": func(o *redis.Options, _ func()) redis.Hook {
		throughTheClient(o)
		o.ReadTimeout, o.WriteTimeout, o.PoolSize = -1, -1, 1
		return nil
	},
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
	"hook, before": func(o *redis.Options, pass func()) redis.Hook {
		throughTheClient(o)
		return hookOf{command: pass, pipeline: pass}
	},
	"hook, after": func(o *redis.Options, pass func()) redis.Hook { throughTheClient(o); return hookOf{after: pass} },
}

// Every call ends with its context, whatever hangs: a client, its hooks, its credentials provider or
// the server. The store serves again when nothing hangs any more, and leaves nothing behind. The twin
// is a command of the client, which does not return.
func TestCallsEndWhateverHangs(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick|testmain.NewerServers, "plays each slow part with each kind of client")
	t.Parallel()
	one, node := redistest.Shared(t).Addr(), redistest.StartCluster(t, 1, nil).Addrs()[0]
	for part, set := range slowParts {
		for _, cluster := range []bool{false, true} {
			for _, cold := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, cluster %v, cold %v", part, cluster, cold), func(t *testing.T) {
					t.Parallel()
					server := map[bool]string{false: one, true: node}[cluster]
					p := respproxy.Start(t, server)
					begun := labelGoroutines(t)
					hang, lifted := make(chan struct{}), make(chan struct{})
					o := &redis.Options{Addr: server, Dialer: through(p, nil)}
					hook := set(o, func() {
						select {
						case <-hang:
							<-lifted
						default:
						}
					})
					client := clientOf(o, cluster, hook)
					s := redisstore.New(client)
					key := keyFor(t)
					if !cold {
						take(t, s, key, claim("tok"))
					}
					if strings.HasPrefix(part, "silence") {
						p.Freeze()
					} else {
						p.Down() // what hangs may do so while connections are made
						begun.without(func() { p.Up(t) })
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
								if err := op(timeout(t, 200*time.Millisecond), s, key); err == nil {
									t.Error(name, "passes what hangs")
								}
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
					require.Empty(t, begun.left())
				})
			}
		}
	}
}

// clientOf returns a client of one server, or of the Cluster that the server is in.
func clientOf(o *redis.Options, cluster bool, hook redis.Hook) redis.UniversalClient {
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

// hanging is a client of another type, whose commands on a key hang.
type hanging struct {
	redis.UniversalClient

	key    string
	lifted chan struct{}
}

func (h hanging) Process(ctx context.Context, cmd redis.Cmder) error {
	if strings.Contains(fmt.Sprint(cmd.Args()...), h.key) {
		<-h.lifted
	}
	return h.UniversalClient.Process(ctx, cmd)
}

// Calls that hang, however many, do not hold up those for other keys.
func TestHangingCallsLeaveOthersAlone(t *testing.T) {
	t.Parallel()
	client := hanging{redistest.Shared(t).Client(t), "unlucky", make(chan struct{})}
	s := redisstore.New(client)
	var calls sync.WaitGroup
	for i := range 64 {
		calls.Go(func() {
			if _, err := s.Claim(timeout(t, 200*time.Millisecond), lock.Key("unlucky", keyFor(t), fmt.Sprint(i)), claim("a")); err == nil {
				t.Error("passes what hangs")
			}
		})
	}
	take(t, s, keyFor(t), claim("a"))
	calls.Wait()
	take(t, s, keyFor(t)+"&2", claim("a"))
	close(client.lifted)
}
