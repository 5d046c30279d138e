package history_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// planting makes the store of the server at addr wrong, in one thing.
type planting func(t *testing.T, addr string, s store) store

// naive is a client with the options that go-redis has by default.
func naive(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// nameOf returns the name of the entry of key in redisstore.
func nameOf(key string) string { return "latch:lock:" + key }
