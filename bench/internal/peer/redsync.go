package peer

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redlock is go-redsync/redsync over one server, with one try.
type redlock struct {
	client *redis.Client
	locks  *redsync.Redsync
	lease  time.Duration
}

func openRedsync(_ context.Context, t Target) (Locker, error) {
	client := NewClient(t)
	return &redlock{client: client, locks: redsync.New(goredis.NewPool(client)), lease: t.lease()}, nil
}

func (r *redlock) Acquire(ctx context.Context, key string) (Held, error) {
	m := r.locks.NewMutex(key, redsync.WithExpiry(r.lease), redsync.WithTries(1))
	err := m.TryLockContext(ctx)
	if err == nil {
		return redlockHeld{m}, nil
	}
	if taken := new(redsync.ErrTaken); errors.As(err, &taken) {
		return nil, ErrRefused
	}
	return nil, err
}

func (r *redlock) Close(context.Context) error { return r.client.Close() }

type redlockHeld struct{ mutex *redsync.Mutex }

func (h redlockHeld) Release(ctx context.Context) error {
	ok, err := h.mutex.UnlockContext(ctx)
	return released(ok, err)
}

// released is the result of a release that reports success by a bool.
func released(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("peer: a key that was held was not released")
	}
	return err
}
