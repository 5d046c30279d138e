package redisstore_test

import (
	"context"
	"log/slog"
	"strconv"
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

// stallWorkers makes every worker of s wait for an answer of p, which is frozen,
// and returns the calls that do.
func stallWorkers(t *testing.T, s *redisstore.Store, p *respproxy.Proxy) (calls *sync.WaitGroup) {
	t.Helper()
	calls = new(sync.WaitGroup)
	p.Freeze()
	for i := range redisstore.CalmWorkers {
		calls.Go(func() { _, _ = s.Claim(timeout(t, 20*time.Second), keyFor(t)+"&stalls"+strconv.Itoa(i), claim("tok")) })
		require.Eventually(t, func() bool { return redisstore.Workers(s) == i+1 && redisstore.Queued(s) == 0 }, patience, time.Millisecond)
	}
	return calls
}

// A claim whose caller gives up while it is queued is never written, and its
// caller knows. (A reaper that finds nothing while it is still to come would be
// done before it lands.)
func TestAbandonedInTheQueue(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	s := alwaysShared(overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout, o.PipelinePoolSize = 20*time.Second, redisstore.MaxWorkers }))
	others := stallWorkers(t, s, p)
	for name, op := range operations {
		err := op(timeout(t, 50*time.Millisecond), s, keyFor(t))
		requireNotApplied(t, err, "context")
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
	}
	require.Zero(t, redisstore.Queued(s), "nothing is kept of them")
	p.Thaw()
	others.Wait()
	require.Empty(t, srv.Keys(t, nameOf(t)))
	require.NoError(t, s.Close())
	require.Zero(t, redisstore.Workers(s))
}

// What go-redis' own autopipeliner does with it.
func TestAutoPipelinerSendsWhatWasAbandoned(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	client := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: 3 * time.Second, MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	pipeliner, err := client.AsyncAutoPipelineWithOptions(&redis.AutoPipelineOptions{MaxConcurrentBatches: 1})
	require.NoError(t, err)
	require.NoError(t, pipeliner.Ping(t.Context()).Err())
	p.On(respproxy.Match{Name: "set", Count: 1}, respproxy.Drop(respproxy.Hang)) // one connection dies, silently
	stalls := pipeliner.SetNX(t.Context(), keyFor(t)+"&stalls", "tok", time.Minute)
	require.Eventually(t, func() bool { return p.Commands("set") == 0 && pipeliner.Len() == 0 }, patience, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	abandoned := pipeliner.SetNX(ctx, keyFor(t), "tok", time.Minute)
	cancel()
	require.Empty(t, srv.Keys(t, keyFor(t)))
	require.Error(t, stalls.Err())
	_ = abandoned.Err()
	require.Len(t, srv.Keys(t, keyFor(t)), 1, "seconds after its caller has gone")
}

// One caller that gives up while its claim is on its way does not know what
// became of it; those beside it are not concerned.
func TestCanceledNeighbors(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	p := respproxy.Start(t, srv.Addr())
	s := overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout = patience })
	held := p.On(respproxy.Match{Name: "set", Key: memberName(t, 0)}, respproxy.Hold())
	counts := new(journeys)
	queued, cancelQueued := context.WithCancel(t.Context())
	written, cancelWritten := context.WithCancel(carry.With(t.Context(), counts))
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
	require.Eventually(t, func() bool { return counts.under.Load() == 1 }, patience, time.Millisecond)
	require.Equal(t, 1, held.Deliver(t))
	all := outcomes()
	requireNotApplied(t, all[1].err, "context")
	requireUnknown(t, all[2].err, "timeout")
	require.ErrorIs(t, all[2].err, context.Canceled)
	for _, i := range []int{0, 3, 4} {
		require.NoError(t, all[i].err)
	}
	require.Eventually(t, func() bool { return counts.under.Load() == 0 }, patience, time.Millisecond)
	require.EqualValues(t, 1, counts.all.Load())
	require.Empty(t, srv.Keys(t, memberName(t, 1)))
	require.Len(t, srv.Keys(t, memberName(t, 2)), 1)
}

// journeys counts what a Locker would: the commands that calls have left behind.
type journeys struct{ under, all atomic.Int32 }

func (j *journeys) Depart()     { j.under.Add(1); j.all.Add(1) }
func (j *journeys) Arrive(bool) { j.under.Add(-1) }

// A batch that stalls costs its members one try and others nothing, however many
// there are.
func TestStalledBatch(t *testing.T) {
	t.Parallel()
	for name, start := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, p := start(t)
			s := to(patience)
			for range redisstore.MaxWorkers {
				take(t, s, keyFor(t), claim("tok")) // so that there are connections
			}
			dead := p.On(respproxy.Match{Name: "set", Key: nameOf(t) + "&dies"}, respproxy.Drop(respproxy.Hang))
			redisstore.ShareFrom(s, 1)
			stalled := make(chan error, 1)
			ctx, cancel := context.WithCancel(timeout(t, time.Minute))
			defer cancel()
			go func() {
				_, err := s.Claim(ctx, keyFor(t)+"&dies", claim("tok"))
				stalled <- err
			}()
			dead.Wait(t, 1)
			var others sync.WaitGroup
			for i := range 100 {
				others.Go(func() {
					for range 5 {
						_, err := s.Claim(timeout(t, 20*time.Second), member(t, i), claim("tok"))
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			others.Wait()
			require.Empty(t, stalled, "it is still waited for")
			cancel()
			requireUnknown(t, <-stalled, "timeout")
			require.Equal(t, 1, dead.Hits())
			p.Down() // which ends what is on its way
		})
	}
}

// While a connection stalls, and after one has stalled that they waited for, few
// share a round trip; otherwise one would do for all.
func TestFewShareWhileConnectionsStall(t *testing.T) {
	t.Parallel()
	const calls = 20
	for name, tt := range map[string]struct {
		before  func(*redisstore.Store)
		stalls  int
		batches int
	}{
		"none stalls":       {func(*redisstore.Store) {}, 0, 1},
		"another stalls":    {redisstore.Lose, 0, 2},
		"theirs has before": {func(*redisstore.Store) {}, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hook := new(batchHook)
			s := hooked(t, redistest.Shared(t).Addr(), hook)
			tt.before(s)
			end := time.Now().Add(20 * time.Second)
			for _, o := range gathered(t, s, calls, func(int) context.Context {
				return &carry.Try{Parent: t.Context(), Until: end, Keep: end, Stalls: tt.stalls, Alarm: new(carry.Alarm)}
			}, nil)() {
				require.NoError(t, o.err)
			}
			require.EqualValues(t, tt.batches, hook.batches.Load())
			require.EqualValues(t, calls, hook.commands.Load())
		})
	}
}

// A connection that stalls takes nothing from those that it does not concern:
// under load, a lane of less capacity would fill up within its half second.
func TestAStalledConnectionCostsNoCapacity(t *testing.T) {
	t.Parallel()
	for pool := 5; pool <= redisstore.MaxWorkers; pool++ { // with four, there is one less to go by
		s := alwaysShared(overClient(t, "127.0.0.1:1", func(o *redis.Options) { o.PipelinePoolSize = pool }))
		before := redisstore.Capacity(s)
		redisstore.Lose(s)
		require.Equal(t, before, redisstore.Capacity(s), pool)
	}
}

// One dead connection and a hundred lockers: all get their lease, those that met
// it by a second try.
func TestDeadConnectionUnderLockers(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := respproxy.Start(t, srv.Addr())
	s := alwaysShared(open(t, p.URL()))
	l := lock.New(s, lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(5*time.Second))
	dead := p.On(respproxy.Match{Name: "set", Count: 1}, respproxy.Drop(respproxy.Hang))
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			e, err := l.Acquire(t.Context(), member(t, i))
			if err != nil {
				t.Error(err)
				return
			}
			if err := e.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	dead.Wait(t, 1)
	require.NoError(t, l.Close(timeout(t, 20*time.Second)))
	require.Empty(t, srv.Keys(t))
}

// A claim whose first send is on its way while the second one is granted, used
// and released lands late. It is swept for.
func TestLateSendOfAReleasedLease(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := respproxy.Start(t, srv.Addr())
	s := alwaysShared(open(t, p.URL()))
	var reaped atomic.Int32
	l := lock.New(s, lock.WithBudget(300*time.Millisecond), lock.WithObserver(func(_ context.Context, e lock.Event) {
		if e.Kind == lock.EventReaped {
			reaped.Add(1)
		}
	}))
	held := p.On(respproxy.Match{Name: "set", Count: 1}, respproxy.Hold())
	require.Eventually(t, func() bool { // as soon as the machine lets the second send through in time
		e, err := l.Acquire(t.Context(), keyFor(t))
		return err == nil && e.Release(t.Context()) == nil
	}, 20*time.Second, time.Millisecond)
	require.Equal(t, 1, held.Deliver(t))
	require.Eventually(t, func() bool { return reaped.Load() > 0 }, 20*time.Second, 5*time.Millisecond, "an orphan")
	require.Empty(t, srv.Keys(t, nameOf(t)))
	require.NoError(t, l.Close(timeout(t, 20*time.Second)))
	require.Empty(t, srv.Keys(t))
}

// A caller leaves on its own timer while the connection for its batch is being
// made, and nothing is written for it afterwards.
func TestSharedHandshakeOutlastsTheCaller(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	handshakes := p.On(respproxy.Match{Name: "hello"}, respproxy.Hold())
	s := alwaysShared(overClient(t, p.Addr(), func(o *redis.Options) { o.ReadTimeout = patience }))
	beside := make(chan error, 1)
	go func() { // it keeps the batches alive
		_, err := s.Claim(timeout(t, 20*time.Second), member(t, 0), claim("tok"))
		beside <- err
	}()
	for name, op := range operations {
		start := time.Now()
		err := op(timeout(t, 100*time.Millisecond), s, keyFor(t))
		requireNotApplied(t, err, "context")
		require.Less(t, time.Since(start), 10*time.Second, name)
	}
	handshakes.Remove()
	handshakes.Deliver(t)
	require.NoError(t, <-beside)
	require.NoError(t, s.Close())
	require.Equal(t, 1, p.Commands("set"))
	require.Zero(t, p.Commands("eval")+p.Commands("evalsha"))
}

// A node of a cluster that does not answer is not waited for by those that call
// another.
func TestStalledNodeOfACluster(t *testing.T) {
	t.Parallel()
	var proxies []*respproxy.Proxy
	cluster := redistest.StartCluster(t, 2, func(_ int, addr string) int {
		proxies = append(proxies, respproxy.Start(t, addr))
		return proxies[len(proxies)-1].Port()
	})
	s := alwaysShared(redisstore.New(cluster.Client(t)))
	nodes := make([][]string, 2) // keys by node
	for i := range 40 {
		key := member(t, i)
		take(t, s, key, claim("tok"))
		name, _ := redisstore.Name("latch:", key)
		n := 0
		if cluster.Owner(t, name) == cluster.Nodes[1] {
			n = 1
		}
		nodes[n] = append(nodes[n], key)
	}
	proxies[0].Freeze()
	var frozen, others sync.WaitGroup
	for _, key := range nodes[0] {
		frozen.Go(func() {
			_, err := s.Claim(timeout(t, time.Second), key, claim("tok"))
			if err == nil {
				t.Error("answered by a node that is frozen")
			}
		})
	}
	for _, key := range nodes[1] {
		others.Go(func() {
			for range 5 {
				if _, err := s.Claim(timeout(t, 20*time.Second), key, claim("tok")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	others.Wait()
	frozen.Wait()
	proxies[0].Thaw()
}
