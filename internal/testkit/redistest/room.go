package redistest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// roomCallers are enough to use all that the server can do, and so few that
// none waits for long.
const roomCallers = 20

// Room returns the number of cycles a second of the server at addr, with bare commands: a SET NX
// and a DEL each. It is the median over the pieces of d.
func Room(ctx context.Context, addr string, d time.Duration) (perSecond float64, err error) {
	const pieces = 5
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: roomCallers})
	var done atomic.Int64
	var over atomic.Bool
	var failed atomic.Pointer[error]
	var callers sync.WaitGroup
	for i := range roomCallers {
		key := fmt.Sprintf("room=%d", i)
		callers.Go(func() {
			for !over.Load() {
				if err := bareCycle(ctx, client, key); err != nil {
					failed.Store(&err)
					return
				}
				done.Add(1)
			}
		})
	}
	time.Sleep(d / pieces) // connections are made
	var rates []float64
	for range pieces {
		before, began := done.Load(), time.Now()
		time.Sleep(d / pieces)
		rates = append(rates, float64(done.Load()-before)/time.Since(began).Seconds())
	}
	over.Store(true)
	callers.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	slices.Sort(rates)
	return rates[pieces/2], client.Close()
}

func bareCycle(ctx context.Context, client *redis.Client, key string) error {
	set := client.SetArgs(ctx, key, "token", redis.SetArgs{Mode: "NX", TTL: time.Minute})
	if err := set.Err(); err != nil {
		return err
	}
	return client.Del(ctx, key).Err()
}
