package peer

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Bare is the name of what a cycle costs at least on go-redis: one SET NX, and
// one script that compares and deletes. Its tokens are a counter, and it
// recovers from nothing.
const Bare = "SET NX + EVALSHA"

// CompareAndDelete is that script.
const CompareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

var compareAndDelete = redis.NewScript(CompareAndDelete)

type bare struct {
	client *redis.Client
	lease  time.Duration
	tokens atomic.Int64
}

func openBare(_ context.Context, t Target) (Locker, error) {
	return &bare{client: NewClient(t), lease: t.lease()}, nil
}

func (b *bare) Acquire(ctx context.Context, key string) (Held, error) {
	token := "token-of-a-usual-length-" + strconv.FormatInt(b.tokens.Add(1), 10)
	ok, err := b.client.SetNX(ctx, key, token, b.lease).Result()
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, ErrRefused
	}
	return bareHeld{b.client, key, token}, nil
}

func (b *bare) Close(context.Context) error { return b.client.Close() }

type bareHeld struct {
	client     *redis.Client
	key, token string
}

func (h bareHeld) Release(ctx context.Context) error {
	n, err := compareAndDelete.Run(ctx, h.client, []string{h.key}, h.token).Int()
	return released(n == 1, err)
}
