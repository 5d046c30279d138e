package history_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
)

// plainSetNX claims by SET with NX, over a client that repeats what it has no
// answer to, and reads the entry that its first send has made as that of
// another client.
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
