package faults_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Stores with the bugs that the campaign is there to find.

// ownerless releases whatever is there, as a plain DEL does.
type ownerless struct{ lock.Store }

func (s ownerless) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	e, err := s.Get(ctx, key)
	if err != nil {
		return false, err
	}
	if e.State == lock.Held {
		c.Token = e.Token
	}
	return s.Store.Release(ctx, key, c)
}

// robber takes a key from its holder, now and then.
type robber struct{ lock.Store }

func (s robber) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	if err != nil || e.State != lock.Held || e.Token == c.Token || e.Left%7 != 0 {
		return e, err
	}
	if _, err := s.Release(ctx, key, lock.Claim{Token: e.Token}); err != nil {
		return e, err
	}
	return s.Store.Claim(ctx, key, c)
}

// naiveClaim gets the reply "taken" to the second send of a claim whose reply was
// lost, and does not ask by whom.
type naiveClaim struct{ lock.Store }

func (s naiveClaim) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	if err == nil || errors.Is(err, lock.ErrNotApplied) {
		return e, err
	}
	return lock.Entry{State: lock.Held, Token: "another"}, nil
}

// forgetful answers every release of a claim that had failed with "done".
type forgetful struct {
	lock.Store
	failed sync.Map // tokens
}

func (s *forgetful) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	if err != nil {
		s.failed.Store(c.Token, true)
	}
	return e, err
}

func (s *forgetful) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if _, failed := s.failed.Load(c.Token); failed {
		return true, nil
	}
	return s.Store.Release(ctx, key, c)
}

// yesman renews without looking.
type yesman struct{ lock.Store }

func (s yesman) Renew(context.Context, string, lock.Claim) (bool, error) { return true, nil }

// recordless frees a key instead of keeping its answer.
type recordless struct{ lock.Store }

func (s recordless) Settle(ctx context.Context, key string, c lock.Claim, _ []byte, _ time.Duration) (bool, error) {
	return s.Release(ctx, key, c)
}

// hasty says of claims that got no answer in time that they were not applied, as if they had still
// been in a queue. They had left it.
type hasty struct{ lock.Store }

func (s hasty) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	const soon = 20 * time.Millisecond // a connection that ends is noticed by then
	began := time.Now()
	e, err := s.Store.Claim(ctx, key, c)
	if err != nil && time.Since(began) > soon {
		return lock.Entry{}, fmt.Errorf("%w: it was given up in the queue", lock.ErrNotApplied)
	}
	return e, err
}

// sweeper cleans up after a claim that had failed by freeing its key, even if it has
// another holder by then.
type sweeper struct {
	lock.Store
	failed sync.Map // tokens
}

func (s *sweeper) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	if err != nil && !errors.Is(err, lock.ErrNotApplied) {
		s.failed.Store(c.Token, true)
	}
	return e, err
}

func (s *sweeper) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	ok, err := s.Store.Release(ctx, key, c)
	if _, failed := s.failed.Load(c.Token); !failed || ok || err != nil {
		return ok, err
	}
	return ownerless{s.Store}.Release(ctx, key, c)
}

// reviver renews a lease that has lapsed, or that a takeover was lost under, also
// where another process has taken the key since.
type reviver struct{ lock.Store }

func (s reviver) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	ok, err := s.Store.Renew(ctx, key, c)
	if ok {
		return true, nil
	}
	// As a script would: at once, or late.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), campaignLease/3)
	defer cancel()
	if freed, failed := ownerless(s).Release(ctx, key, c); !freed || failed != nil {
		return ok, err
	}
	e, err := s.Claim(ctx, key, c)
	return e.State == lock.Held && e.Token == c.Token, err
}
