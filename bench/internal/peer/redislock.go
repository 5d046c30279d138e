package peer

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// bsm is bsm/redislock with its defaults, which are one try and a random token.
type bsm struct {
	client *redis.Client
	locks  *redislock.Client
	lease  time.Duration
}

func openRedislock(_ context.Context, t Target) (Locker, error) {
	client := NewClient(t)
	return &bsm{client: client, locks: redislock.New(client), lease: t.lease()}, nil
}

func (b *bsm) Acquire(ctx context.Context, key string) (Held, error) {
	held, err := b.locks.Obtain(ctx, key, b.lease, nil)
	switch {
	case err == nil:
		return held, nil
	case errors.Is(err, redislock.ErrNotObtained):
		return nil, ErrRefused
	}
	return nil, err
}

func (b *bsm) Close(context.Context) error { return b.client.Close() }

// openAutoPipelined is the same over the pipeline that go-redis v9.23 makes by
// itself of what its callers send at once, with its defaults. It calls that
// interface experimental.
func openAutoPipelined(_ context.Context, t Target) (Locker, error) {
	client := NewClient(t)
	pipeline, err := client.AutoPipeline()
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &bsm{client: client, locks: redislock.New(pipeline), lease: t.lease()}, nil // the client's Close is the pipeline's too
}
