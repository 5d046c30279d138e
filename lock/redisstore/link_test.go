package redisstore_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// depthHook notes how many functions a command has passed through when it gets
// to the hook, which is the innermost one.
type depthHook struct {
	lateHook

	frames int
}

func (h *depthHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.frames = runtime.Callers(0, make([]uintptr, 100_000))
		return next(ctx, cmd)
	}
}

// A program may make a store for each request, job or test over the one client
// that it has: that must not slow the client down.
func TestManyStoresOverOneClientLeaveItsOwnCommandsAlone(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (redis.UniversalClient, func() canHook){
		"client": func(t *testing.T) (redis.UniversalClient, func() canHook) {
			c := redistest.Shared(t).Client(t)
			return c, func() canHook { return c }
		},
		"cluster client": func(t *testing.T) (redis.UniversalClient, func() canHook) {
			c := redistest.StartCluster(t, 1, nil).Client(t)
			return c, func() canHook { return c }
		},
		"node of a cluster client": func(t *testing.T) (redis.UniversalClient, func() canHook) {
			c := redistest.StartCluster(t, 1, nil).Client(t)
			return c, func() canHook {
				node, err := c.MasterForKey(t.Context(), "k")
				require.NoError(t, err)
				return node
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			frames := func(stores int) int {
				client, of := start(t)
				for range stores {
					s := redisstore.New(client)
					if stores < 100 || name != "client" {
						take(t, s, keyFor(t), claim("a"))
					}
				}
				var depth depthHook
				of().AddHook(&depth)
				require.NoError(t, client.Set(t.Context(), "own-"+keyFor(t), "v", time.Second).Err())
				return depth.frames
			}
			many := 5000
			if name != "client" {
				many = 50 // each sends a command
			}
			require.Equal(t, frames(1), frames(many))
		})
	}
}

type canHook interface{ AddHook(h redis.Hook) }

// The hook that a store has added to its client must be freed with the store.
//
// Not parallel: it looks at the heap.
func TestStoresThatAreDroppedLeaveNothing(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // frees the memory that a cleanup has released
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	redisstore.New(client)
	before := heap()
	for range 3000 {
		redisstore.New(client)
	}
	require.Less(t, heap()-before, int64(1<<20))
	runtime.KeepAlive(client)
}

// A client is not kept in memory because it had a store.
func TestClientsThatAreDroppedAreNotKept(t *testing.T) {
	t.Parallel()
	const clients = 20
	var gone atomic.Int32
	for range clients {
		client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr()})
		runtime.AddCleanup(client, func(gone *atomic.Int32) { gone.Add(1) }, &gone)
		take(t, redisstore.New(client), keyFor(t), claim("a"))
		require.NoError(t, client.Close())
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return gone.Load() >= clients-1 // the last one may still be in a register
	}, patience, 10*time.Millisecond)
}
