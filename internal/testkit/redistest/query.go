package redistest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/internal/testkit/process"
)

// Client returns a go-redis client of s with default options. It is closed when tb ends. It is no method: the
// compiler takes 2 s for each package that can reach the type of its result.
func Client(tb testing.TB, s *Server) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: s.password})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Do runs one command on a new connection and returns its answer, nil
// for a null reply. An error ends the test.
func (s *Server) Do(tb testing.TB, args ...any) any {
	tb.Helper()
	c := adminClient(s)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	v, err := c.Do(ctx, args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		tb.Fatalf("redistest: %v: %v", args, err)
	}
	return v
}

// Keys returns the server's keys in order, read on a new connection: all keys,
// or the keys that match one of the patterns ("*user=42").
func (s *Server) Keys(tb testing.TB, patterns ...string) []string {
	tb.Helper()
	c := adminClient(s)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	if len(patterns) == 0 {
		patterns = []string{"*"}
	}
	var keys []string
	for _, pattern := range patterns {
		it := c.Scan(ctx, 0, pattern, 1000).Iterator()
		for it.Next(ctx) {
			keys = append(keys, it.Val())
		}
		if err := it.Err(); err != nil {
			tb.Fatalf("redistest: keys: %v", err)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys) // SCAN may return a key twice
}

// adminClient returns a minimal client: one connection, no retries, no
// handshake except the password.
func adminClient(s *Server) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Addr(), Password: s.password, Protocol: 2, DisableIdentity: true,
		PoolSize: 1, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: process.Patience, ReadTimeout: process.Patience,
	})
}
