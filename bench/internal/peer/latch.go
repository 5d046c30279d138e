package peer

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// latch is this library, over the same client as the others.
type latch struct {
	client *redis.Client
	store  *redisstore.Store
	locker *lock.Locker
}

// NewLocker returns the Locker that is compared. A command may take a second,
// like those of the others, before it is sent again: that is after a third of
// the budget, the default of which is 500 ms.
func NewLocker(store lock.Store) *lock.Locker {
	return lock.New(store, lock.WithLease(Lease), lock.WithBudget(3*time.Second))
}

func openLatch(_ context.Context, t Target) (Locker, error) {
	l := &latch{client: NewClient(t)}
	l.store = redisstore.New(l.client)
	l.locker = NewLocker(l.store)
	return l, nil
}

func (l *latch) Acquire(ctx context.Context, key string) (Held, error) {
	lease, err := l.locker.Acquire(ctx, key)
	switch {
	case err == nil:
		return lease, nil
	case errors.Is(err, lock.ErrHeld):
		return nil, ErrRefused
	}
	return nil, err
}

func (l *latch) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = l.locker.Close(ctx) // it may still be cleaning up after calls that had no answer: not the bench's business
	return errors.Join(l.store.Close(), l.client.Close())
}
