package history_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
)

// plainDel releases by DEL, even if another client has the key.
type plainDel struct {
	store
	client *redis.Client
}

func plantPlainDel(t *testing.T, addr string, s store) store {
	t.Helper()
	return plainDel{s, naive(t, addr)}
}

func (s plainDel) Release(ctx context.Context, key string, _ lock.Claim) (bool, error) {
	n, err := s.client.Del(ctx, nameOf(key)).Result()
	return n > 0, err
}

// plainSettle settles whatever there is.
type plainSettle struct{ store }

func plantPlainSettle(_ *testing.T, _ string, s store) store { return plainSettle{s} }

func (s plainSettle) Settle(ctx context.Context, key string, _ lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	e, err := s.Get(ctx, key)
	if err != nil {
		return false, err
	}
	return s.store.Settle(ctx, key, lock.Claim{Token: e.Token}, receipt, keep)
}

// sweepingRelease removes receipts too.
type sweepingRelease struct{ store }

func plantSweepingRelease(_ *testing.T, _ string, s store) store {
	return sweepingRelease{s}
}

func (s sweepingRelease) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return s.Forget(ctx, key, c.Token)
}

// tardy releases in the background.
type tardy struct {
	store
	under *sync.WaitGroup
}

func plantTardy(t *testing.T, _ string, s store) store {
	t.Helper()
	under := new(sync.WaitGroup)
	t.Cleanup(under.Wait)
	return tardy{s, under}
}

func (s tardy) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	s.under.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patienceOfCall)
		defer cancel()
		time.Sleep(5 * time.Millisecond)
		_, _ = s.store.Release(ctx, key, c)
	})
	return true, nil
}

// necromancer renews an entry that is gone.
type necromancer struct{ store }

func plantNecromancer(_ *testing.T, _ string, s store) store { return necromancer{s} }

func (s necromancer) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	ok, err := s.store.Renew(ctx, key, c)
	if err != nil || ok {
		return ok, err
	}
	e, err := s.Claim(ctx, key, c)
	return e.Token == c.Token, err
}

// cached reads what it has read before.
type cached struct {
	store
	read *sync.Map
}

func plantCached(_ *testing.T, _ string, s store) store { return cached{s, new(sync.Map)} }

func (s cached) Get(ctx context.Context, key string) (lock.Entry, error) {
	if e, ok := s.read.Load(key); ok {
		return e.(lock.Entry), nil
	}
	e, err := s.store.Get(ctx, key)
	if err == nil {
		s.read.Store(key, e)
	}
	return e, err
}
