package redisstore_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/internal/respproxy"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// counting has o count the connections that are made.
func counting(o *redis.Options) (made *atomic.Int32) {
	made = new(atomic.Int32)
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			made.Add(1)
		}
		return c, err
	}
	return made
}

// A server that answers nobody gets no more connections for that, however many
// callers there are and however large the client's pool is.
func TestConnectionsToASlowServer(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Shared(t).Addr())
	var made *atomic.Int32
	s := alwaysShared(overClient(t, p.Addr(), func(o *redis.Options) {
		o.ReadTimeout, o.PipelinePoolSize, made = 20*time.Second, redisstore.MaxWorkers, counting(o)
	}))
	slow := stallWorkers(t, s, p)
	var calls sync.WaitGroup
	for i := range 200 {
		calls.Go(func() {
			if _, err := s.Claim(timeout(t, 300*time.Millisecond), member(t, i), claim("tok")); !errors.Is(err, lock.ErrNotApplied) {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	require.Equal(t, redisstore.CalmWorkers, redisstore.Workers(s))
	require.EqualValues(t, redisstore.CalmWorkers, made.Load())
	p.Thaw()
	slow.Wait()
}

// Connections that stall while others do not are replaced, as long as the client
// has some.
func TestConnectionsThatStall(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pipelines, all int // the sizes of the client's pools
		most           int // connections, and workers
	}{
		"default pool":    {0, 0, redis.DefaultPipelinePoolSize},
		"small pool":      {3, 0, 3},
		"pool":            {20, 0, 20},
		"large pool":      {redisstore.MaxWorkers + 8, 0, redisstore.MaxWorkers},
		"no pool but one": {-1, 15, 15},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := respproxy.Start(t, redistest.Shared(t).Addr())
			var made *atomic.Int32
			s := alwaysShared(overClient(t, p.Addr(), func(o *redis.Options) {
				o.PipelinePoolSize, o.PoolSize = tt.pipelines, tt.all
				o.ReadTimeout, made = time.Minute, counting(o)
			}))
			dead := p.On(respproxy.Match{Name: "set", Key: nameOf(t) + "~dies"}, respproxy.Drop(respproxy.Hang))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var calls sync.WaitGroup
			for i := range tt.most {
				calls.Go(func() { _, _ = s.Claim(ctx, keyFor(t)+"~dies"+strconv.Itoa(i), claim("tok")) })
				dead.Wait(t, i+1)
				if i+1 == tt.most {
					break // there is none that could be answered
				}
				require.Eventually(t, func() bool { // what is answered tells the others from it
					_, _ = s.Claim(timeout(t, 20*time.Second), keyFor(t), claim("tok"))
					return redisstore.Workers(s) == i+1 && redisstore.Lost(s) == i+1
				}, patience, time.Millisecond)
			}
			_, err := s.Claim(timeout(t, 300*time.Millisecond), keyFor(t), claim("tok"))
			requireNotApplied(t, err, "context")
			require.Equal(t, tt.most, redisstore.Workers(s))
			require.EqualValues(t, tt.most, made.Load())
			cancel()
			calls.Wait()
			p.Down()
			require.Eventually(t, func() bool { return redisstore.Workers(s) == 0 }, patience, time.Millisecond)
			require.Zero(t, redisstore.Lost(s))
		})
	}
}

func TestWorkersHaveConnections(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ pipelines, all, most int }{
		{0, 0, redis.DefaultPipelinePoolSize},
		{0, 3, redis.DefaultPipelinePoolSize},
		{1, 100, 1},
		{redisstore.MaxWorkers - 1, 3, redisstore.MaxWorkers - 1},
		{redisstore.MaxWorkers, 3, redisstore.MaxWorkers},
		{redisstore.MaxWorkers + 1, 3, redisstore.MaxWorkers},
		{-1, 7, 7},
		{-2, redisstore.MaxWorkers + 1, redisstore.MaxWorkers},
		{-1, 0, min(10*runtime.GOMAXPROCS(0), redisstore.MaxWorkers)}, // go-redis' default
	} {
		s := overClient(t, "127.0.0.1:1", func(o *redis.Options) { o.PipelinePoolSize, o.PoolSize = tt.pipelines, tt.all })
		require.Equal(t, tt.most, redisstore.MostWorkers(s), "%+v", tt)
	}
}
