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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/internal/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// outcome is what a claim came to.
type outcome struct {
	entry lock.Entry
	err   error
}

// gathered has n claims, each on a key of its own, share one round trip. before,
// if not nil, is called when all of them wait for it.
func gathered(t *testing.T, s *redisstore.Store, n int, ctx func(i int) context.Context, before func()) (outcomes func() []outcome) {
	t.Helper()
	require.Eventually(t, func() bool { return redisstore.Out(s) == 0 }, patience, time.Millisecond)
	letGo := redisstore.Gather(s)
	all := make([]outcome, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			all[i].entry, all[i].err = s.Claim(ctx(i), member(t, i), claim("tok"))
		})
		require.Eventually(t, func() bool { return redisstore.Queued(s) == i+1 }, patience, time.Millisecond)
	}
	if before != nil {
		before()
	}
	letGo()
	return func() []outcome {
		calls.Wait()
		return all
	}
}

// member is the key of the i-th of those that share a round trip.
func member(t *testing.T, i int) string {
	t.Helper()
	return fmt.Sprintf("%s&%d", keyFor(t), i)
}

func memberName(t *testing.T, i int) string {
	t.Helper()
	name, _ := redisstore.Name("latch:", member(t, i))
	return name
}

func unbounded(t *testing.T) func(int) context.Context {
	t.Helper()
	return func(int) context.Context { return timeout(t, 20*time.Second) }
}

// batchHook sees what shares round trips, and can do what hooks do.
type batchHook struct {
	lateHook

	batches, commands atomic.Int32
	before, after     func(cmds []redis.Cmder)
	again             bool
}

func (h *batchHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.batches.Add(1)
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

// hooked is a store over a client with hook.
func hooked(t *testing.T, addr string, hook redis.Hook) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	client.AddHook(hook)
	return redisstore.New(client)
}

func TestCallersShareARoundTrip(t *testing.T) {
	t.Parallel()
	h := new(batchHook)
	s := hooked(t, redistest.Shared(t).Addr(), h)
	all := gathered(t, s, 10, unbounded(t), nil)()
	require.EqualValues(t, 1, h.batches.Load())
	require.EqualValues(t, 10, h.commands.Load())
	for i, o := range all {
		require.NoError(t, o.err)
		require.Equal(t, lock.Held, o.entry.State)
		e, err := s.Get(t.Context(), member(t, i))
		require.NoError(t, err)
		require.Equal(t, "tok", e.Token)
	}
	require.Eventually(t, func() bool { return redisstore.Out(s) == 0 }, patience, time.Millisecond)
}

// What is large goes alone: others would wait for it.
func TestLargeCommandsGoAlone(t *testing.T) {
	t.Parallel()
	h := new(batchHook)
	s := hooked(t, redistest.Shared(t).Addr(), h)
	for i := range 3 {
		take(t, s, member(t, i), claim("tok"))
	}
	_, err := s.Settle(t.Context(), member(t, 0), "other", nil, time.Minute) // so that there is the script
	require.NoError(t, err)
	letGo := redisstore.Gather(s)
	before := h.batches.Load()
	var calls sync.WaitGroup
	for i := range 3 {
		calls.Go(func() {
			_, err := s.Settle(timeout(t, patience), member(t, i), "tok", make([]byte, []int{8 << 10, 1 << 10, 32 << 10}[i]), time.Minute)
			assert.NoError(t, err)
		})
		require.Eventually(t, func() bool { return redisstore.Queued(s) == i+1 }, patience, time.Millisecond)
	}
	letGo()
	calls.Wait()
	require.EqualValues(t, 2, h.batches.Load()-before, "the first goes with none that is large")
}

// Commands that get an error, of whatever kind, leave the others alone.
func TestErrorRepliesAreOfOneCommand(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	s := overClient(t, p.Addr(), nil)
	p.On(respproxy.Match{Key: memberName(t, 0)}, respproxy.ReplyError("READONLY You can't write against a read only replica."))
	p.On(respproxy.Match{Key: memberName(t, 2)}, respproxy.ReplyErrorAfterApply("upstream failure"))
	all := gathered(t, s, 5, unbounded(t), nil)()
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
	s := overClient(t, srv.Addr(), nil)
	gathered(t, s, 8, unbounded(t), nil)()
	for range 2 {
		srv.Do(t, "SCRIPT", "FLUSH")
		require.Eventually(t, func() bool { return redisstore.Out(s) == 0 }, patience, time.Millisecond)
		letGo := redisstore.Gather(s)
		var calls sync.WaitGroup
		for i := range 8 {
			calls.Go(func() {
				ok, err := s.Renew(t.Context(), member(t, i), claim("tok"))
				if !ok || err != nil {
					t.Errorf("%v, %v", ok, err)
				}
			})
		}
		require.Eventually(t, func() bool { return redisstore.Queued(s) == 8 }, patience, time.Millisecond)
		letGo()
		calls.Wait()
	}
}

// A lost reply costs the callers whose reply was not read, and no others. Nothing is
// sent twice, although the client is one that repeats.
func TestLostReplyInABatch(t *testing.T) {
	t.Parallel()
	for end, want := range map[respproxy.End]string{respproxy.Close: "connection", respproxy.Hang: "timeout"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			s := overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 3*time.Second, 3 })
			p.On(respproxy.Match{Name: "set", Key: memberName(t, 2)}, respproxy.Swallow(end))
			all := gathered(t, s, 5, unbounded(t), nil)()
			for i, o := range all {
				if i < 2 {
					require.NoError(t, o.err)
				} else {
					requireUnknown(t, o.err, want)
				}
			}
			require.Equal(t, 5, p.Commands("set"))
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
		require.False(t, each.Val(), "its own entry is read as somebody else's")
	}
}

// A hook that repeats the pipeline changes nothing of what was answered, and makes
// of the rest what it makes of a single command.
func TestHookThatRepeatsABatch(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	s := hooked(t, p.Addr(), &batchHook{again: true})
	p.On(respproxy.Match{Name: "set", Key: memberName(t, 1), Count: 1}, respproxy.Swallow(respproxy.Close))
	p.On(respproxy.Match{Name: "set", Key: memberName(t, 1)}, respproxy.ReplyError("READONLY You can't write against a read only replica."))
	all := gathered(t, s, 3, unbounded(t), nil)()
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
				for _, o := range gathered(t, s, 3, unbounded(t), nil)() {
					require.ErrorContains(t, o.err, "hook")
					require.ErrorIs(t, o.err, lock.ErrNotApplied)
				}
				require.Zero(t, p.Commands("set"))
				require.Eventually(t, func() bool { return redisstore.Out(s) == 0 }, patience, time.Millisecond)
			})
			t.Run("after", func(t *testing.T) {
				t.Parallel()
				s := hooked(t, redistest.Shared(t).Addr(), &batchHook{after: end})
				for range 3 {
					for _, o := range gathered(t, s, 3, unbounded(t), nil)() {
						require.NoError(t, o.err, "it was answered before")
					}
				}
				require.Eventually(t, func() bool { return redisstore.Out(s) == 0 }, patience, time.Millisecond)
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
	for _, o := range gathered(t, s, 3, unbounded(t), nil)() {
		require.ErrorIs(t, o.err, lock.ErrNotApplied)
	}
	close(h.proceed)
	<-h.done
	require.Zero(t, p.Commands("set"))
}

type keepingHook struct {
	batchHook

	proceed, done chan struct{}
}

func (h *keepingHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
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
	conn := client.Conn()
	require.NoError(t, conn.Ping(t.Context()).Err())
	for _, o := range gathered(t, s, 3, unbounded(t), nil)() {
		requireNotApplied(t, o.err, "pool")
	}
	require.NoError(t, conn.Close())
	require.NoError(t, client.Close())
	for _, o := range gathered(t, s, 3, unbounded(t), nil)() {
		requireNotApplied(t, o.err, "closed")
	}
}

func TestSharingIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).URL())
	empty := redisstore.FillQueue(s)
	_, err := s.Claim(t.Context(), keyFor(t), claim("tok"))
	requireNotApplied(t, err, "queue")
	require.ErrorIs(t, err, lock.ErrDenied, "to be sent again would only make it longer")
	empty()
	take(t, s, keyFor(t), claim("tok"))
}

// Nothing is left of a store over a client of the program's own.
func TestCloseWaitsForRoundTrips(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	s := hooked(t, p.Addr(), new(batchHook))
	held := p.On(respproxy.Match{Name: "set", Key: memberName(t, 0)}, respproxy.HoldFor(200*time.Millisecond))
	outcomes := gathered(t, s, 3, unbounded(t), nil)
	held.Wait(t, 1)
	require.NoError(t, s.Close())
	require.Zero(t, redisstore.Out(s))
	for _, o := range outcomes() {
		require.NoError(t, o.err)
	}
}

// A caller that gives up while its command is queued has sent nothing; one that
// does after that does not know; and neither concerns the others.
func TestCanceledNeighbors(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	s := overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout = patience })
	held := p.On(respproxy.Match{Name: "set", Key: memberName(t, 0)}, respproxy.Hold())
	queued, cancelQueued := context.WithCancel(t.Context())
	written, cancelWritten := context.WithCancel(t.Context())
	defer cancelWritten()
	outcomes := gathered(t, s, 5, func(i int) context.Context {
		switch i {
		case 1:
			return queued
		case 2:
			return written
		}
		return timeout(t, 20*time.Second)
	}, func() {
		cancelQueued()
		require.Eventually(t, func() bool { return redisstore.Queued(s) == 4 }, patience, time.Millisecond)
	})
	held.Wait(t, 1)
	cancelWritten()
	require.Equal(t, 1, held.Deliver(t))
	all := outcomes()
	requireNotApplied(t, all[1].err, "context")
	requireUnknown(t, all[2].err, "timeout")
	require.ErrorIs(t, all[2].err, context.Canceled)
	for _, i := range []int{0, 3, 4} {
		require.NoError(t, all[i].err)
	}
	require.Empty(t, srv.Keys(t, memberName(t, 1)))
	require.Len(t, srv.Keys(t, memberName(t, 2)), 1)
}
