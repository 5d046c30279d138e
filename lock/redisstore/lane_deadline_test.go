package redisstore_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/carry"
	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/internal/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// certainly counts what a Locker would, and what of it was certain.
type certainly struct {
	journeys

	certain atomic.Int32
}

func (c *certainly) Arrive(certain bool) {
	if certain {
		c.certain.Add(1)
	}
	c.journeys.Arrive(certain)
}

// trying is the context of a send that a Locker makes itself.
func trying(t *testing.T, d time.Duration, deaf bool, counts carry.Counter) *carry.Try {
	t.Helper()
	try := &carry.Try{Parent: t.Context(), Deaf: deaf, Until: time.Now().Add(d), Counter: counts, Alarm: new(carry.Alarm)}
	t.Cleanup(try.End)
	return try
}

// Nobody has a timer of its own in the queue, and none waits there for longer
// than is of use. What is told so was never written.
func TestDeadlineInTheQueue(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	s := alwaysShared(overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout, o.PipelinePoolSize = 20*time.Second, redisstore.MaxWorkers }))
	others := stallWorkers(t, s, p)
	counts := new(certainly)
	for name, op := range operations {
		for _, deaf := range []bool{false, true} {
			began := time.Now()
			err := op(trying(t, 50*time.Millisecond, deaf, counts), s, keyFor(t))
			requireNotApplied(t, err, "context")
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.Less(t, time.Since(began), 10*time.Second)
		}
	}
	require.Zero(t, redisstore.Queued(s))
	require.Zero(t, counts.under.Load(), "nothing is left behind")
	p.Thaw()
	others.Wait()
	require.Empty(t, srv.Keys(t, nameOf(t)))
}

// A batch that waits for its connection keeps nobody, and writes nothing of who
// has gone meanwhile.
func TestDeadlineDuringTheHandshake(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	p.On(respproxy.Match{Name: "hello"}, respproxy.DelayReply(time.Second))
	s := alwaysShared(overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout = patience }))
	counts := new(certainly)
	letGo := redisstore.Gather(s)
	var calls sync.WaitGroup
	calls.Go(func() { // keeps the batch alive
		if _, err := s.Claim(timeout(t, patience), member(t, 0), claim("tok")); err != nil {
			t.Error(err)
		}
	})
	for name, op := range operations {
		calls.Go(func() {
			err := op(trying(t, 300*time.Millisecond, true, counts), s, keyFor(t))
			if !errors.Is(err, lock.ErrNotApplied) || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(name, err)
			}
		})
	}
	require.Eventually(t, func() bool { return redisstore.Queued(s) == len(operations)+1 }, patience, time.Millisecond)
	letGo()
	calls.Wait()
	require.NoError(t, s.Close())
	require.Zero(t, counts.under.Load())
	require.Equal(t, counts.all.Load(), counts.certain.Load())
	require.Equal(t, 1, p.Commands("set"))
	require.Zero(t, p.Commands("eval")+p.Commands("evalsha"))
}

// A caller that gives up in the moment in which a worker takes its command has
// left nothing behind. (What it had counted would never have been undone.)
func TestGivenUpWhenTaken(t *testing.T) {
	t.Parallel()
	s := overClient(t, redistest.Shared(t).Addr(), nil)
	redisstore.ShareFrom(s, 1)
	counts := new(certainly)
	ctx, cancel := context.WithCancel(carry.With(t.Context(), counts))
	letGo := redisstore.Gather(s)
	const callers = 10
	var calls sync.WaitGroup
	for i := range callers {
		calls.Go(func() {
			_, err := s.Claim(ctx, member(t, i), claim("tok"))
			if !errors.Is(err, lock.ErrNotApplied) || !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return redisstore.Queued(s) == callers }, patience, time.Millisecond)
	require.Zero(t, redisstore.TakeAfter(s, cancel))
	calls.Wait()
	require.Zero(t, counts.under.Load())
	letGo()
	take(t, s, keyFor(t), claim("tok"))
}

// All callers of a server that does not answer come back, however many they are.
func TestBudgetsOfASilentServer(t *testing.T) {
	t.Parallel()
	const callers, budget = 300, 300 * time.Millisecond
	for name, from := range map[string]int64{"shared": 1, "direct": redisstore.Never} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			p := respproxy.Start(t, srv.Addr())
			s := open(t, p.URL())
			redisstore.ShareFrom(s, from)
			l := lock.New(s, lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(budget))
			require.Eventually(t, func() bool { // there are connections and scripts
				return l.Do(t.Context(), keyFor(t), func(context.Context) error { return nil }) == nil
			}, patience, time.Millisecond)
			p.Freeze()
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					began := time.Now()
					_, err := l.Acquire(t.Context(), member(t, i))
					if took := time.Since(began); !errors.Is(err, lock.ErrUnavailable) || took > budget+10*time.Second {
						t.Error(took, err)
					}
				})
			}
			all.Wait()
			p.Thaw()
			require.NoError(t, l.Close(timeout(t, 30*time.Second)))
			require.Empty(t, srv.Keys(t))
		})
	}
}

// A caller that gives up its own send leaves the batch at once, with an error
// that says so, whether that was written or is still to be.
func TestGivenUpInABatch(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	s := overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout = patience })
	held := p.On(respproxy.Match{Name: "set", Key: memberName(t, 0)}, respproxy.Hold())
	counts := new(certainly)
	parent, cancel := context.WithCancel(t.Context())
	try := trying(t, 20*time.Second, false, counts)
	try.Parent = parent
	outcomes := gathered(t, s, 3, func(i int) context.Context {
		if i == 1 {
			return try
		}
		return timeout(t, 20*time.Second)
	}, nil)
	held.Wait(t, 1)
	cancel()
	require.Eventually(t, func() bool { return counts.under.Load() == 1 }, patience, time.Millisecond)
	require.Equal(t, 1, held.Deliver(t))
	all := outcomes()
	requireUnknown(t, all[1].err, "timeout")
	require.ErrorIs(t, all[1].err, context.Canceled)
	require.ErrorContains(t, all[1].err, "canceled")
	require.NoError(t, all[0].err)
	require.NoError(t, all[2].err)
	require.Eventually(t, func() bool { return counts.under.Load() == 0 }, patience, time.Millisecond)
	require.EqualValues(t, 1, counts.certain.Load())
}
