package redisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// outcome is the result of a claim.
type outcome struct {
	entry lock.Entry
	err   error
}

// gathering has calls, each on its own key, that share one round trip: they wait for the only
// connection, which another call keeps busy.
type gathering struct {
	letGo func()
	all   []outcome
	ended []chan struct{}
}

// gather begins n calls on s, which has one connection for pipelines, through p. They
// are all queued when it returns.
func gather(t *testing.T, s *redisstore.Store, p *respproxy.Proxy, n int, ctx func(i int) context.Context, call func(ctx context.Context, i int) outcome) *gathering {
	t.Helper()
	g := &gathering{all: make([]outcome, n)}
	busy := p.On(respproxy.Match{Name: "set", Key: entryName(keyFor(t) + "&busy")}, respproxy.Hold())
	first := make(chan error, 1)
	go func() {
		_, err := s.Claim(timeout(t, time.Minute), keyFor(t)+"&busy", claim("tok"))
		first <- err
	}()
	busy.Wait(t, 1)
	for i := range n {
		each, ended := &asked{Context: ctx(i), queued: make(chan struct{})}, make(chan struct{})
		g.ended = append(g.ended, ended)
		go func() {
			defer close(ended)
			g.all[i] = call(each, i)
		}()
		<-each.queued
	}
	g.letGo = func() {
		require.Equal(t, 1, busy.Deliver(t))
		busy.Remove()
		require.NoError(t, <-first)
	}
	return g
}

// outcomes lets the calls go, and returns their outcomes.
func (g *gathering) outcomes() []outcome {
	g.letGo()
	return g.wait()
}

func (g *gathering) wait() []outcome {
	for _, ended := range g.ended {
		<-ended
	}
	return g.all
}

// asked is the context of a call. A store asks for its deadline when it queues the call, before it
// checks for other ends.
type asked struct {
	context.Context //nolint:containedctx // it is one

	once   sync.Once
	queued chan struct{}
}

func (a *asked) Deadline() (time.Time, bool) {
	a.once.Do(func() { close(a.queued) })
	return a.Context.Deadline()
}

// claimsOf gathers claims.
func claimsOf(t *testing.T, s *redisstore.Store, p *respproxy.Proxy, n int, ctx func(i int) context.Context) *gathering {
	t.Helper()
	return gather(t, s, p, n, ctx, func(ctx context.Context, i int) (o outcome) {
		o.entry, o.err = s.Claim(ctx, member(t, i), claim("tok"))
		return o
	})
}

// member returns the key of the i-th call in a shared round trip.
func member(t *testing.T, i int) string {
	t.Helper()
	return fmt.Sprintf("%s&%d", keyFor(t), i)
}

func memberName(t *testing.T, i int) string {
	t.Helper()
	return entryName(member(t, i))
}

func oneConnection(o *redis.Options) { o.PipelinePoolSize = 1 }

func unbounded(t *testing.T) func(int) context.Context {
	t.Helper()
	return func(int) context.Context { return timeout(t, 20*time.Second) }
}

// batchHook sees the commands that share a round trip, and can act like any hook.
type batchHook struct {
	lateHook

	batches, commands, returned atomic.Int32
	before, after               func(cmds []redis.Cmder)
	again                       bool
}

func (h *batchHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) == 1 {
			return next(ctx, cmds)
		}
		h.batches.Add(1)
		defer h.returned.Add(1)
		h.commands.Add(int32(len(cmds)))
		if h.before != nil {
			h.before(cmds)
		}
		err := next(ctx, cmds)
		if err != nil && h.again {
			err = next(ctx, cmds)
		}
		if h.after != nil {
			h.after(cmds)
		}
		return err
	}
}

func (*batchHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// hooked is a store with one connection over a client with hook.
func hooked(t *testing.T, addr string, hook redis.Hook) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, PipelinePoolSize: 1})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	client.AddHook(hook)
	return redisstore.New(client)
}

func TestCallersShareARoundTrip(t *testing.T) {
	t.Parallel()
	h := new(batchHook)
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	s := hooked(t, p.Addr(), h)
	all := claimsOf(t, s, p, 10, unbounded(t)).outcomes()
	require.EqualValues(t, 1, h.batches.Load())
	require.EqualValues(t, 10, h.commands.Load())
	for i, o := range all {
		require.NoError(t, o.err)
		require.Equal(t, lock.Held, o.entry.State)
		e, err := s.Get(t.Context(), member(t, i))
		require.NoError(t, err)
		require.Equal(t, "tok", e.Token)
	}
}

// A command that gets an error of any kind does not affect the others.
func TestErrorRepliesAreOfOneCommand(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	s := overClient(t, p.Addr(), oneConnection)
	p.On(respproxy.Match{Key: memberName(t, 0)}, respproxy.ReplyError("READONLY You can't write against a read only replica."))
	p.On(respproxy.Match{Key: memberName(t, 2)}, respproxy.ReplyErrorAfterApply("upstream failure"))
	all := claimsOf(t, s, p, 5, unbounded(t)).outcomes()
	requireNotApplied(t, all[0].err, "READONLY")
	requireUnknown(t, all[2].err, "reply")
	for _, i := range []int{1, 3, 4} {
		require.NoError(t, all[i].err)
		require.Equal(t, "tok", all[i].entry.Token)
	}
}

func TestServerForgetsTheScriptsOfABatch(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := respproxy.Start(t, srv.Addr())
	s := overClient(t, p.Addr(), oneConnection)
	claimsOf(t, s, p, 8, unbounded(t)).outcomes()
	for range 2 {
		srv.Do(t, "SCRIPT", "FLUSH")
		all := gather(t, s, p, 8, unbounded(t), func(ctx context.Context, i int) (o outcome) {
			var ok bool
			if ok, o.err = s.Renew(ctx, member(t, i), claim("tok")); ok {
				o.entry.State = lock.Held
			}
			return o
		}).outcomes()
		for _, o := range all {
			require.NoError(t, o.err)
			require.Equal(t, lock.Held, o.entry.State)
		}
	}
}

// A lost reply costs the callers whose reply was not read, and no others. Nothing is sent twice,
// although the client repeats.
func TestLostReplyInABatch(t *testing.T) {
	t.Parallel()
	for end, want := range map[respproxy.End]string{respproxy.Close: "connection", respproxy.Hang: "silent"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			s := overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout, o.MaxRetries, o.PipelinePoolSize = 3*time.Second, 3, 1 })
			p.On(respproxy.Match{Name: "set", Key: memberName(t, 2)}, respproxy.Swallow(end))
			all := claimsOf(t, s, p, 5, unbounded(t)).outcomes()
			for i, o := range all {
				if i < 2 {
					require.NoError(t, o.err)
				} else {
					requireUnknown(t, o.err, want)
				}
			}
			require.Equal(t, 1+5, p.Commands("set"), "and the one that they waited for")
			for i := range all {
				p.Clear()
				require.Equal(t, i >= 2, take(t, s, member(t, i), claim("tok")).Left == 0 && all[i].err != nil, "found, not taken anew")
			}
		})
	}
}

// Why commands in a pipeline say that they must not be repeated.
func TestPlainPipelineRepeatsAllOfItself(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	p.On(respproxy.Match{Name: "set", Key: member(t, 2), Count: 1}, respproxy.Swallow(respproxy.Close))
	pipe := client.Pipeline()
	var taken []*redis.BoolCmd
	for i := range 5 {
		taken = append(taken, pipe.SetNX(t.Context(), member(t, i), "tok", time.Minute))
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	require.Equal(t, 10, p.Commands("set"))
	for _, each := range taken {
		require.False(t, each.Val(), "its own entry is read as another caller's")
	}
}

// A hook that repeats the pipeline does not change the commands that were answered. For the
// others the outcome is the same as for a single command.
func TestHookThatRepeatsABatch(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	s := hooked(t, p.Addr(), &batchHook{again: true})
	p.On(respproxy.Match{Name: "set", Key: memberName(t, 1), Count: 1}, respproxy.Swallow(respproxy.Close))
	p.On(respproxy.Match{Name: "set", Key: memberName(t, 1)}, respproxy.ReplyError("READONLY You can't write against a read only replica."))
	all := claimsOf(t, s, p, 3, unbounded(t)).outcomes()
	require.NoError(t, all[0].err)
	require.NotZero(t, all[0].entry.Left, "taken, and not found as taken")
	requireUnknown(t, all[1].err, "READONLY")
	require.NoError(t, all[2].err)
}

func TestHooksThatDoNotReturn(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func([]redis.Cmder){
		"panic": func([]redis.Cmder) { panic("a hook's") },
		"exit":  func([]redis.Cmder) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("before", func(t *testing.T) {
				t.Parallel()
				p := respproxy.Start(t, redistest.Shared(t).Addr())
				s := hooked(t, p.Addr(), &batchHook{before: end})
				for _, o := range claimsOf(t, s, p, 3, unbounded(t)).outcomes() {
					require.ErrorContains(t, o.err, "hook")
					require.ErrorIs(t, o.err, lock.ErrNotApplied)
				}
				require.Equal(t, 1, p.Commands("set"), "what they waited for")
				take(t, s, keyFor(t), claim("tok")) // the connection is free again
			})
			t.Run("after", func(t *testing.T) {
				t.Parallel()
				p := respproxy.Start(t, redistest.Shared(t).Addr())
				s := hooked(t, p.Addr(), &batchHook{after: end})
				for range 3 {
					for _, o := range claimsOf(t, s, p, 3, unbounded(t)).outcomes() {
						require.NoError(t, o.err, "it was answered before")
					}
				}
			})
		})
	}
}

// A hook that answers for the server, or goes on after it has returned, has
// written nothing, and will not.
func TestHooksThatKeepABatch(t *testing.T) {
	t.Parallel()
	h := &keepingHook{proceed: make(chan struct{}), done: make(chan struct{})}
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	s := hooked(t, p.Addr(), h)
	for _, o := range claimsOf(t, s, p, 3, unbounded(t)).outcomes() {
		require.ErrorIs(t, o.err, lock.ErrNotApplied)
	}
	close(h.proceed)
	<-h.done
	require.Equal(t, 1, p.Commands("set"), "what they waited for")
}

type keepingHook struct {
	batchHook

	proceed, done chan struct{}
}

func (h *keepingHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) == 1 {
			return next(ctx, cmds)
		}
		go func() {
			<-h.proceed
			_ = next(context.WithoutCancel(ctx), cmds)
			close(h.done)
		}()
		return nil
	}
}

func TestSharingWithAClosedOrExhaustedClient(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{
		Addr: redistest.Shared(t).Addr(), PoolSize: 1, PipelinePoolSize: -1, PoolTimeout: 20 * time.Millisecond,
	})
	s := redisstore.New(client)
	claims := func() (errs []error) { // the first keeps the others waiting
		var calls sync.WaitGroup
		var mu sync.Mutex
		for i := range 3 {
			calls.Go(func() {
				_, err := s.Claim(timeout(t, patience), member(t, i), claim("tok"))
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		calls.Wait()
		return errs
	}
	conn := client.Conn()
	require.NoError(t, conn.Ping(t.Context()).Err())
	for _, err := range claims() {
		requireNotApplied(t, err, "pool")
	}
	require.NoError(t, conn.Close())
	require.NoError(t, client.Close())
	for _, err := range claims() {
		requireNotApplied(t, err, "closed")
	}
}

// Nothing is left of a store over a client of the program's own.
func TestCloseWaitsForRoundTrips(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	h := new(batchHook)
	s := hooked(t, p.Addr(), h)
	held := p.On(respproxy.Match{Name: "set", Key: memberName(t, 0)}, respproxy.HoldFor(200*time.Millisecond))
	g := claimsOf(t, s, p, 3, unbounded(t))
	g.letGo()
	held.Wait(t, 1)
	require.NoError(t, s.Close())
	require.EqualValues(t, 1, h.returned.Load())
	for _, o := range g.wait() {
		require.NoError(t, o.err)
	}
}

// A caller that gives up while its command is queued has sent nothing. For a
// caller that gives up later, the outcome is unknown. Neither affects the
// others.
func TestCanceledNeighbors(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	s := overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout, o.PipelinePoolSize = patience, 1 })
	held := p.On(respproxy.Match{Name: "set", Key: memberName(t, 0)}, respproxy.Hold())
	queued, cancelQueued := context.WithCancel(t.Context())
	written, cancelWritten := context.WithCancel(t.Context())
	defer cancelWritten()
	g := claimsOf(t, s, p, 5, func(i int) context.Context {
		switch i {
		case 1:
			return queued
		case 2:
			return written
		}
		return timeout(t, 20*time.Second)
	})
	cancelQueued()
	<-g.ended[1]
	g.letGo()
	held.Wait(t, 1)
	cancelWritten()
	<-g.ended[2]
	require.Equal(t, 1, held.Deliver(t))
	all := g.wait()
	requireNotApplied(t, all[1].err, "cancelled")
	requireUnknown(t, all[2].err, "cancelled")
	require.ErrorIs(t, all[2].err, context.Canceled)
	for _, i := range []int{0, 3, 4} {
		require.NoError(t, all[i].err)
	}
	require.Empty(t, srv.Keys(t, memberName(t, 1)))
	require.Len(t, srv.Keys(t, memberName(t, 2)), 1)
}
