package shop

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

// store is a store of this library.
type store interface {
	lock.Store
	Migrate(ctx context.Context) error
	Close()
}

// latch is this library with its defaults: a claim, and a receipt in the order's
// transaction.
type latch struct {
	store  store
	locker *lock.Locker
	insert func(ctx context.Context) ([]byte, error)
	close  func() error // what the store is over
}

func (l *latch) open(ctx context.Context, t Target) (Shop, error) {
	l.locker = lock.New(l.store, lock.WithTransaction(), lock.WithLease(Lease), lock.WithKeep(cmp.Or(t.Keep, Retention)))
	if err := l.store.Migrate(ctx); err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	return l, nil
}

func (l *latch) Order(ctx context.Context, key string) error {
	_, replayed, err := l.locker.Once(ctx, key, nil, l.insert)
	if err == nil && replayed {
		err = errReplayed
	}
	return err
}

func (l *latch) Keep(ctx context.Context, key string) error { return l.Order(ctx, key) }

func (l *latch) Replay(ctx context.Context, key string) error {
	_, replayed, err := l.locker.Once(ctx, key, nil, l.insert)
	if err == nil && !replayed {
		err = errNoReplay
	}
	return err
}

// Claim implements Claimer.
func (l *latch) Claim(ctx context.Context, key string) error {
	token := rand.Text()
	e, err := l.store.Claim(ctx, keytext.Record(key), lock.Claim{Token: token, Attempt: 1, Owner: "a-host-name:12345", Lease: Lease})
	if err == nil && e.Token != token {
		err = errReplayed
	}
	return err
}

func (l *latch) Close(ctx context.Context) error {
	err := l.locker.Close(ctx)
	l.store.Close()
	return errors.Join(err, l.close())
}
