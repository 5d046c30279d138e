package peer

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"
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
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{t.Addr}},
		KeyValidity:    Lease,
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
	_, cancel, err := r.locks.TryWithContext(ctx, key)
	switch {
	case err == nil:
		return rueidisHeld(cancel), nil
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
type rueidisHeld context.CancelFunc

func (h rueidisHeld) Release(context.Context) error {
	h()
	return nil
}
