package day_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/day"
	"github.com/httplatch/httplatch/bench/internal/peer"
)

// A script by its hash, which this package executes, has the answers and effects that the
// interpreter gives to its text.
func TestScripts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, _ := day.Dialer()
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: dial})
		defer func() { require.NoError(t, client.Close()) }()
		trace := func(key string, run func(text string, args ...any) (any, error)) (seen []any) {
			for _, step := range []struct {
				text string
				args []any
			}{
				{peer.CompareAndDelete, []any{"a"}},
				{peer.SetAndExpire, []any{"a", 30}},
				{peer.SetAndExpire, []any{"b", 30}},
				{peer.CompareAndDelete, []any{"b"}},
				{peer.CompareAndDelete, []any{"a"}},
				{peer.SetAndExpire, []any{"c", 30}},
			} {
				n, err := run(step.text, step.args...)
				require.NoError(t, err)
				seen = append(seen, n, client.Get(t.Context(), key).Val(), client.TTL(t.Context(), key).Val())
			}
			time.Sleep(31 * time.Second)
			return append(seen, client.Exists(t.Context(), key).Val())
		}
		require.Equal(t,
			trace("text", func(text string, args ...any) (any, error) {
				return client.Eval(t.Context(), text, []string{"text"}, args...).Result()
			}),
			trace("hash", func(text string, args ...any) (any, error) {
				return client.EvalSha(t.Context(), redis.NewScript(text).Hash(), []string{"hash"}, args...).Result()
			}))
	})
}
