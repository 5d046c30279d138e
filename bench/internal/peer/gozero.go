package peer

import (
	"context"

	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stores/redis"
)

// goZero is the lock of zeromicro/go-zero. Its client has go-redis' default
// pool of ten connections a core, which cannot be set, and is why all others
// have that by default too; it repeats commands that fail, of which there are
// none here. It is one per address for the life of the process, so that Close
// has nothing to close.
//
// Its circuit breaker takes an answer NOSCRIPT for a failure, and opens if many
// callers get it at once, so that a first cycle loads the scripts.
type goZero struct{ store *redis.Redis }

func openGoZero(ctx context.Context, t Target) (Locker, error) {
	logx.Disable()
	store, err := redis.NewRedis(redis.RedisConf{Host: t.Addr, Type: redis.NodeType, DisableIdentity: true})
	if err != nil {
		return nil, err
	}
	g := goZero{store}
	return g, Cycle(ctx, g, "the first")
}

func (g goZero) Acquire(ctx context.Context, key string) (Held, error) {
	l := redis.NewRedisLock(g.store, key)
	l.SetExpire(int(Lease.Seconds()))
	ok, err := l.AcquireCtx(ctx)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, ErrRefused
	}
	return goZeroHeld{l}, nil
}

func (goZero) Close(context.Context) error { return nil }

type goZeroHeld struct{ lock *redis.RedisLock }

func (h goZeroHeld) Release(ctx context.Context) error {
	ok, err := h.lock.ReleaseCtx(ctx)
	return released(ok, err)
}
