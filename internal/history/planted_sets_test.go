package history_test

import (
	"context"
	"testing"

	"github.com/httplatch/httplatch/lock"
)

// nest takes keys one inside another, in the order in which the caller has them.
func nest(ctx context.Context, l *lock.Locker, keys []string) (nested, error) {
	var held nested
	for _, key := range keys {
		lease, err := l.Acquire(ctx, key)
		if err != nil {
			_ = held.Release(ctx)
			return nil, err //nolint:wrapcheck // judged by its caller
		}
		held = append(held, lease)
	}
	return held, nil
}

type nested []*lock.Lease

func (n nested) Release(ctx context.Context) (err error) {
	for _, lease := range n {
		if e := lease.Release(ctx); e != nil {
			err = e
		}
	}
	return err
}

// partClaim claims all keys of a set but the last.
type partClaim struct{ setStore }

func plantPartClaim(_ *testing.T, _ string, s store) store { return partClaim{s.(setStore)} }

func (s partClaim) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
	last := len(keys) - 1
	return s.setStore.ClaimSet(ctx, keys[:last], claims[:last])
}

// anyTicket gives a key to the bearer of each ticket of it, also of one that was used.
type anyTicket struct{ store }

func plantAnyTicket(_ *testing.T, _ string, s store) store { return anyTicket{s} }

func (s anyTicket) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if c.ReplacesHeld {
		e, err := s.Get(ctx, key)
		if err != nil {
			return lock.Entry{}, err
		}
		if e.State == lock.Held && e.Token != c.Token {
			c.Replaces = e.Token
		}
	}
	return s.store.Claim(ctx, key, c)
}
