package redisstore_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
)

// cycle claims and releases key.
func cycle(ctx context.Context, b *testing.B, s lock.Store, key string, c lock.Claim) {
	b.Helper()
	e, err := s.Claim(ctx, key, c)
	if err != nil || e.Token != c.Token {
		b.Errorf("claim: %+v, %v", e, err)
	}
	if ok, err := s.Release(ctx, key, c); err != nil || !ok {
		b.Errorf("release: %v, %v", ok, err)
	}
}

func BenchmarkClaimRelease(b *testing.B) {
	for _, kind := range []struct {
		name string
		c    lock.Claim
	}{{"plain", claim("token-of-a-usual-length-0123456789")}, {"fenced", fenced("token-of-a-usual-length-0123456789")}} {
		b.Run(kind.name+"/callers=1", func(b *testing.B) {
			s := open(b, redistest.Shared(b).URL())
			b.ReportAllocs()
			for b.Loop() {
				cycle(b.Context(), b, s, "user=42", kind.c)
			}
		})
		b.Run(kind.name+"/callers=64", func(b *testing.B) {
			s := open(b, redistest.Shared(b).URL()+"?pool_size=64")
			var callers atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(32) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				key := "user=" + strconv.FormatInt(callers.Add(1), 10)
				for pb.Next() {
					cycle(b.Context(), b, s, key, kind.c)
				}
			})
		})
	}
}

// The least cost of a claim and a release: a SET NX, and a compare-and-delete.
func BenchmarkBareSetNXEvalSHA(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(b).Addr()})
	defer func() { require.NoError(b, client.Close()) }()
	script := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	const token = "token-of-a-usual-length-0123456789"
	c := claim(token)
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := client.SetNX(b.Context(), "bare", token, c.Lease).Result(); err != nil || !ok {
			b.Fatal(ok, err)
		}
		if n, err := script.Run(b.Context(), client, []string{"bare"}, token).Int(); err != nil || n != 1 {
			b.Fatal(n, err)
		}
	}
}

// The cost of a cycle for a caller of a Locker.
func BenchmarkAcquireRelease(b *testing.B) {
	use := func(b *testing.B, l *lock.Locker, key string) {
		b.Helper()
		e, err := l.Acquire(b.Context(), key)
		if err != nil {
			b.Error(err)
			return
		}
		if err := e.Release(b.Context()); err != nil {
			b.Error(err)
		}
	}
	b.Run("callers=1", func(b *testing.B) {
		l := lock.New(open(b, redistest.Shared(b).URL()))
		b.ReportAllocs()
		for b.Loop() {
			use(b, l, "user=42")
		}
	})
	b.Run("callers=64", func(b *testing.B) {
		l := lock.New(open(b, redistest.Shared(b).URL()+"?pool_size=64"))
		var callers atomic.Int64
		b.ReportAllocs()
		b.SetParallelism(32) // times GOMAXPROCS
		b.RunParallel(func(pb *testing.PB) {
			key := lock.Key("user", strconv.FormatInt(callers.Add(1), 10))
			for pb.Next() {
				use(b, l, key)
			}
		})
	})
}
