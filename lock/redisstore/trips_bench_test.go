package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// Ways to lock and unlock, side by side: in turns, on one server, in one process.
//
//	go test -run '^$' -bench SharedTrips -benchtime 1x ./lock/redisstore
//
// "bare" is a SET NX and an EVALSHA over go-redis' own pool, as plain
// lock libraries do.
func BenchmarkSharedTrips(b *testing.B) {
	const rounds, turn = 5, 300 * time.Millisecond
	addr := redistest.Shared(b).Addr()
	store := func(query string) *redisstore.Store { return open(b, "redis://"+addr+query) }
	client := redis.NewClient(&redis.Options{Addr: addr})
	b.Cleanup(func() { require.NoError(b, client.Close()) })
	ways := []struct {
		name  string
		cycle func(ctx context.Context, key string) error
	}{
		{"bare", bareCycle(client)},
		{"default", storeCycle(store(""))},
		{"locker", lockerCycle(lock.New(store("")))},
	}
	for _, callers := range []int{1, 4, 8, 12, 16, 24, 32, 64, 256, 1024} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			rates := make(map[string][]float64)
			tails := make(map[string][]time.Duration)
			for b.Loop() {
				for round := range rounds {
					for i := range ways {
						w := ways[(i+round)%len(ways)]
						rate, times := spin(b, callers, turn, w.cycle)
						rates[w.name] = append(rates[w.name], rate)
						tails[w.name] = append(tails[w.name], times...)
					}
				}
			}
			bare := median(rates["bare"])
			for _, w := range ways {
				rate := median(rates[w.name])
				b.ReportMetric(rate, w.name+"/s")
				b.ReportMetric(rate/bare, w.name+"/bare")
				all := tails[w.name]
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds()), w.name+"-p50-µs")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), w.name+"-p99-µs")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// spin makes a number of callers run cycles, each on its own key, for a while.
func spin(b *testing.B, callers int, turn time.Duration, cycle func(ctx context.Context, key string) error) (rate float64, times []time.Duration) {
	b.Helper()
	var stop atomic.Bool
	var all sync.WaitGroup
	took := make([][]time.Duration, callers)
	began := time.Now()
	for n := range callers {
		all.Go(func() {
			key := lock.Key("user", strconv.Itoa(n))
			for !stop.Load() {
				began := time.Now()
				if err := cycle(b.Context(), key); err != nil {
					b.Error(err)
					return
				}
				took[n] = append(took[n], time.Since(began))
			}
		})
	}
	time.Sleep(turn)
	stop.Store(true)
	all.Wait()
	times = slices.Concat(took...)
	return float64(len(times)) / time.Since(began).Seconds(), times
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func bareCycle(client *redis.Client) func(ctx context.Context, key string) error {
	script := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	const token = "token-of-a-usual-length-0123456789"
	return func(ctx context.Context, key string) error {
		if ok, err := client.SetNX(ctx, key, token, time.Minute).Result(); err != nil || !ok {
			return fmt.Errorf("claim: %v, %w", ok, err)
		}
		if n, err := script.Run(ctx, client, []string{key}, token).Int(); err != nil || n != 1 {
			return fmt.Errorf("release: %v, %w", n, err)
		}
		return nil
	}
}

func storeCycle(s *redisstore.Store) func(ctx context.Context, key string) error {
	const token = "token-of-a-usual-length-0123456789"
	return func(ctx context.Context, key string) error {
		if e, err := s.Claim(ctx, key, claim(token)); err != nil || e.Token != token {
			return fmt.Errorf("claim: %+v, %w", e, err)
		}
		if ok, err := s.Release(ctx, key, lock.Claim{Token: token}); err != nil || !ok {
			return fmt.Errorf("release: %v, %w", ok, err)
		}
		return nil
	}
}

func lockerCycle(l *lock.Locker) func(ctx context.Context, key string) error {
	return func(ctx context.Context, key string) error {
		e, err := l.Acquire(ctx, key)
		if err != nil {
			return err
		}
		return e.Release(ctx)
	}
}
