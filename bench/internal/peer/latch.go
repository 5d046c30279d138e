package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// latch is this library, over the same client as the others.
type latch struct {
	client *redis.Client // nil if it is the store's
	store  *redisstore.Store
	locker *lock.Locker
}

// NewMemory returns an embedded store for so many keys.
func NewMemory(keys int) lock.Store { return memstore.New(memstore.WithLimits(keys, 64<<30)) }

// NewLocker returns the Locker that is compared. A command may take a second,
// like those of the others, before it is sent again: that is after a third of
// the budget, the default of which is 500 ms, see openDefaults.
func NewLocker(store lock.Store) *lock.Locker {
	return lock.New(store, lock.WithLease(Lease), lock.WithBudget(3*time.Second))
}

func openLatch(_ context.Context, t Target) (Locker, error) {
	l := &latch{client: NewClient(t)}
	l.store = redisstore.New(l.client)
	l.locker = NewLocker(l.store)
	return l, nil
}

// openDefaults is this library without any settings: a client that redisstore
// makes, and the default budget.
func openDefaults(ctx context.Context, t Target) (Locker, error) {
	store, err := redisstore.Open(ctx, fmt.Sprintf("redis://%s?pool_size=%d", t.Addr, t.Pool))
	if err != nil {
		return nil, err
	}
	return &latch{store: store, locker: lock.New(store, lock.WithLease(Lease))}, nil
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
	err := l.store.Close()
	if l.client != nil {
		err = errors.Join(err, l.client.Close())
	}
	return err
}
