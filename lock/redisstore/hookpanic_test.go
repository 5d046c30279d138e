package redisstore_test

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// panics is code of a user's that runs inside of calls to the client.
type panics struct {
	left atomic.Int32 // number of further panics
}

func (p *panics) maybe() {
	for {
		left := p.left.Load()
		if left <= 0 {
			return
		}
		if p.left.CompareAndSwap(left, left-1) {
			panic("a hook's")
		}
	}
}

func (p *panics) DialHook(next redis.DialHook) redis.DialHook { return next }
func (p *panics) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { p.maybe(); return next(ctx, cmd) }
}

func (p *panics) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { p.maybe(); return next(ctx, cmds) }
}

// afterwards panics when the server has answered.
type afterwards struct{ *panics }

func (p afterwards) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { defer p.maybe(); return next(ctx, cmd) }
}

func (p afterwards) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { defer p.maybe(); return next(ctx, cmds) }
}

// dialing panics when a connection is made.
type dialing struct {
	redis.Hook

	*panics
}

func (p dialing) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		p.maybe()
		return next(ctx, network, addr)
	}
}
func (dialing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (dialing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// limiting is a Limiter that panics.
type limiting struct{ *panics }

func (p limiting) Allow() error       { p.maybe(); return nil }
func (limiting) ReportResult(_ error) {}

// throughTheClient makes the store send its commands through the client, and its hooks.
func throughTheClient(o *redis.Options) {
	o.OnConnect = func(context.Context, *redis.Conn) error { return nil }
}

// places are where a client runs code of its user's.
var places = map[string]func(p *panics, o *redis.Options) (hook redis.Hook){
	"hook, before": func(p *panics, o *redis.Options) redis.Hook { throughTheClient(o); return p },
	"hook, after":  func(p *panics, o *redis.Options) redis.Hook { throughTheClient(o); return afterwards{p} },
	"dial hook":    func(p *panics, o *redis.Options) redis.Hook { throughTheClient(o); return dialing{panics: p} },
	"dialer": func(p *panics, o *redis.Options) redis.Hook {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			p.maybe()
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		return nil
	},
	"OnConnect": func(p *panics, o *redis.Options) redis.Hook {
		o.OnConnect = func(context.Context, *redis.Conn) error { p.maybe(); return nil }
		return nil
	},
	"credentials": func(p *panics, o *redis.Options) redis.Hook {
		o.CredentialsProvider = func() (user, password string) { p.maybe(); return "", "" }
		return nil
	},
	"limiter": func(p *panics, o *redis.Options) redis.Hook { o.Limiter = limiting{p}; return nil },
}

// A bug in a user's hook of the client fails the calls that run it. It ends
// neither the process nor leaves a key taken.
func TestPanicsOfAClientsUser(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts a server for each place and kind of panic")
	t.Parallel()
	for where, place := range places {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			var p panics
			o := &redis.Options{Addr: srv.Addr()}
			hook := place(&p, o)
			client := redis.NewClient(o)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			if hook != nil {
				client.AddHook(hook)
			}
			s := notifying(t, client)
			l := lock.New(s, lock.WithLease(2*time.Second), lock.WithBudget(time.Second), lock.WithLogger(slog.New(slog.DiscardHandler)))
			t.Cleanup(func() { require.NoError(t, l.Close(timeout(t, patience))) })
			// Connections that are gone are made anew, which is where half of the code runs.
			panicking := func(times int32) {
				srv.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				srv.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
				p.left.Store(times)
			}

			panicking(1)
			e, err := l.Acquire(t.Context(), "k")
			require.NoError(t, err, "the same claim again finds out")
			panicking(2)
			require.Eventually(t, func() bool { return p.left.Load() == 0 }, patience, 5*time.Millisecond, "a renewal")
			time.Sleep(2 * time.Second)
			require.NoError(t, e.Context().Err())
			panicking(1)
			require.NoError(t, e.Release(t.Context()))

			panicking(4)
			if e, err = l.Acquire(t.Context(), "k"); err == nil {
				require.NoError(t, e.Release(t.Context()))
			}
			require.Eventually(t, func() bool { return len(srv.Keys(t)) == 0 }, patience, 10*time.Millisecond, "it is cleaned up")
			p.left.Store(0)

			other := notifying(t, srv.Client(t))
			wake, stop := s.Watch("k")
			defer stop()
			if o.OnConnect != nil || o.Limiter != nil {
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
