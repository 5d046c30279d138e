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

// After a failover, what was written in the last moments is undone, and no more: a key that was
// renewed has its earlier end, and a key that was given back is there again.
func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, failOver := day.Dialer()
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: dial, MaxRetries: -1})
		defer func() { require.NoError(t, client.Close()) }()
		ctx := t.Context()
		set := func(key, value string) { require.NoError(t, client.Set(ctx, key, value, time.Minute).Err()) }
		set("kept", "before")
		set("renewed", "before")
		set("returned", "before")
		require.NoError(t, client.HSet(ctx, "settled", "answer", "before").Err())
		time.Sleep(10 * time.Second)

		forgotten := make(chan []string)
		go func() { forgotten <- failOver(200 * time.Millisecond) }()
		time.Sleep(100 * time.Millisecond)
		set("claimed", "after")
		set("renewed", "after")
		require.NoError(t, client.Del(ctx, "returned").Err())
		require.NoError(t, client.HSet(ctx, "settled", "answer", "after").Err())

		require.Equal(t, []string{"claimed"}, <-forgotten)
		require.Eventually(t, func() bool { return client.Ping(ctx).Err() == nil }, time.Second, time.Millisecond)
		for _, key := range []string{"kept", "renewed", "returned"} {
			require.Equal(t, "before", client.Get(ctx, key).Val(), key)
			require.InDelta(t, 49*time.Second, client.TTL(ctx, key).Val(), float64(time.Second), key)
		}
		require.Equal(t, "before", client.HGet(ctx, "settled", "answer").Val())
		require.Zero(t, client.Exists(ctx, "claimed").Val())
	})
}

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
