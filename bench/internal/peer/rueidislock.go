package peer

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis/rueidislock"
)

// rueidisLock is redis/rueidis/rueidislock. It has its own client, which
// puts all callers' commands on one connection, so the pool's size says nothing
// to it. Set differently from its defaults:
//
//   - one key a lock (its default is a majority of three keys on one server);
//   - invalidations of own keys are not asked for, which is its faster mode;
//   - a command may take a second, like those of the others: after its default
//     of 20 ms many of 1024 callers would be refused instead of served.
type rueidisLock struct{ locks rueidislock.Locker }

func openRueidislock(_ context.Context, t Target) (Locker, error) {
	client := rueidisOption(t)
	client.DisableCache = t.Dial != nil // only those who wait for a lock would have use for it
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   client,
		KeyValidity:    t.lease(),
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   time.Second,
	})
	if err != nil {
		return nil, err
	}
	return rueidisLock{locks}, nil
}

func (r rueidisLock) Acquire(ctx context.Context, key string) (Held, error) {
	work, cancel, err := r.locks.TryWithContext(ctx, key)
	switch {
	case err == nil:
		return rueidisHeld{work, cancel}, nil
	case errors.Is(err, rueidislock.ErrNotLocked):
		return nil, ErrRefused
	}
	return nil, err
}

func (r rueidisLock) Close(context.Context) error {
	r.locks.Close()
	return nil
}

// rueidisHeld releases: it returns when the server has answered. Whether it did
// is not reported.
type rueidisHeld struct {
	work   context.Context //nolint:containedctx // of the work under the lock, which the library ends
	cancel context.CancelFunc
}

// Context is that of the work.
func (h rueidisHeld) Context() context.Context { return h.work }

func (h rueidisHeld) Release(context.Context) error {
	h.cancel()
	return nil
}
