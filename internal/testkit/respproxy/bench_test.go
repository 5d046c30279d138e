package respproxy_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

// BenchmarkRoundTrip shows what the proxy adds to a command.
func BenchmarkRoundTrip(b *testing.B) {
	s := redistest.Shared(b)
	for name, addr := range map[string]string{"direct": s.Addr(), "proxied": respproxy.Start(b, s.Addr()).Addr()} {
		b.Run(name, func(b *testing.B) {
			c := redis.NewClient(&redis.Options{Addr: addr})
			defer func() { require.NoError(b, c.Close()) }()
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Set(b.Context(), "bench", "v", 0).Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
