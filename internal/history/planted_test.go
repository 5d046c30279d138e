package history_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
)

// plainSetNX claims by SET with NX, over a client that repeats unanswered commands. It
// takes the entry of its own first send for the entry of another client.
type plainSetNX struct {
	store
	client *redis.Client
}

func plantPlainSetNX(t *testing.T, addr string, s store) store {
	t.Helper()
	return plainSetNX{s, naive(t, addr)}
}

func (s plainSetNX) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	value := fmt.Sprintf("H1%c%s%013d%016d%c%c%s%c%s\x00", len(c.Token), c.Token, c.Linger.Milliseconds(), 0,
		c.Attempt, len(c.Fingerprint), c.Fingerprint, len(c.Owner), c.Owner)
	err := s.client.SetArgs(ctx, nameOf(key), value, redis.SetArgs{Mode: "NX", TTL: c.Lease + c.Linger}).Err()
	switch {
	case errors.Is(err, redis.Nil):
		return lock.Entry{State: lock.Held}, nil
	case err != nil:
		return lock.Entry{}, err
	}
	return lock.Entry{
		State: lock.Held, Token: c.Token, Attempt: c.Attempt, Fingerprint: c.Fingerprint, Owner: c.Owner, Left: c.Lease,
	}, nil
}

// hasty says of everything that was not answered that it did not happen.
type hasty struct{ store }

func plantHasty(_ *testing.T, _ string, s store) store { return hasty{s} }

func (s hasty) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.store.Claim(ctx, key, c)
	if err != nil {
		err = fmt.Errorf("%w: %w", lock.ErrNotApplied, err)
	}
	return e, err
}

// anyones takes over every abandoned entry.
type anyones struct{ store }

func plantAnyones(_ *testing.T, _ string, s store) store { return anyones{s} }

func (s anyones) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if c.Replaces != "" {
		e, err := s.Get(ctx, key)
		if err != nil {
			return lock.Entry{}, err
		}
		c.Replaces = e.Token
	}
	return s.store.Claim(ctx, key, c)
}

// usurper takes over what is still held.
type usurper struct{ store }

func plantUsurper(_ *testing.T, _ string, s store) store { return usurper{s} }

func (s usurper) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if c.Replaces != "" {
		if _, err := s.Release(ctx, key, lock.Claim{Token: c.Replaces}); err != nil {
			return lock.Entry{}, err
		}
	}
	return s.store.Claim(ctx, key, c)
}

// unguarded claims on when its caller has given up.
type unguarded struct {
	store
	under *sync.WaitGroup
}

func plantUnguarded(t *testing.T, _ string, s store) store {
	t.Helper()
	under := new(sync.WaitGroup)
	t.Cleanup(under.Wait)
	return unguarded{s, under}
}

func (s unguarded) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	type answer struct {
		e   lock.Entry
		err error
	}
	answers := make(chan answer, 1)
	s.under.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*patienceOfCall)
		defer cancel()
		e, err := s.store.Claim(ctx, key, c)
		answers <- answer{e, err}
	})
	select {
	case a := <-answers:
		return a.e, a.err
	case <-ctx.Done():
		return lock.Entry{}, ctx.Err()
	}
}

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

// stretched makes leases that are shorter or longer than what was asked for,
// and never says how much is left of one.
type stretched struct {
	store
	by float64
}

func plantStretched(by float64) planting {
	return func(_ *testing.T, _ string, s store) store { return stretched{s, by} }
}

func (s stretched) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	asked := c.Lease
	c.Lease = time.Duration(float64(asked) * s.by)
	e, err := s.store.Claim(ctx, key, c)
	if e.Left = 0; e.State == lock.Held && e.Token == c.Token {
		e.Left = asked
	}
	return e, err
}

func (s stretched) Get(ctx context.Context, key string) (lock.Entry, error) {
	e, err := s.store.Get(ctx, key)
	e.Left = 0
	return e, err
}

// coarse has fences that only every so many claims change, or microseconds.
type coarse struct {
	store
	by int64
}

func plantCoarse(by int64) planting {
	return func(_ *testing.T, _ string, s store) store { return coarse{s, by} }
}

func (s coarse) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.store.Claim(ctx, key, c)
	e.Fence /= s.by
	return e, err
}

func (s coarse) Get(ctx context.Context, key string) (lock.Entry, error) {
	e, err := s.store.Get(ctx, key)
	e.Fence /= s.by
	return e, err
}
