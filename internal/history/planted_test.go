package history_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// reads is the method Get of a wrong store.
type reads func(ctx context.Context, s store, key string) (lock.Entry, error)

// wrong is a store with functions of its own in place of some methods.
type wrong struct {
	store

	claim          func(ctx context.Context, s store, key string, c lock.Claim) (lock.Entry, error)
	get            reads
	renew, release func(ctx context.Context, s store, key string, c lock.Claim) (bool, error)
	settle         func(ctx context.Context, s store, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error)
}

func (w wrong) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if w.claim == nil {
		return w.store.Claim(ctx, key, c)
	}
	return w.claim(ctx, w.store, key, c)
}

func (w wrong) Get(ctx context.Context, key string) (lock.Entry, error) {
	if w.get == nil {
		return w.store.Get(ctx, key)
	}
	return w.get(ctx, w.store, key)
}

func (w wrong) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if w.renew == nil {
		return w.store.Renew(ctx, key, c)
	}
	return w.renew(ctx, w.store, key, c)
}

func (w wrong) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if w.release == nil {
		return w.store.Release(ctx, key, c)
	}
	return w.release(ctx, w.store, key, c)
}

func (w wrong) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	if w.settle == nil {
		return w.store.Settle(ctx, key, c, receipt, keep)
	}
	return w.settle(ctx, w.store, key, c, receipt, keep)
}

// ofTheEntry returns c with the token of the entry of key.
func ofTheEntry(ctx context.Context, s store, key string, c lock.Claim) (lock.Claim, error) {
	e, err := s.Get(ctx, key)
	if e.State != lock.Free {
		c.Token = e.Token
	}
	return c, err
}

// plainRelease releases the entry of any holder.
func plainRelease(ctx context.Context, s store, key string, c lock.Claim) (bool, error) {
	c, err := ofTheEntry(ctx, s, key, c)
	if err != nil {
		return false, err
	}
	return s.Release(ctx, key, c)
}

// plainSettle settles the entry of any holder.
func plainSettle(ctx context.Context, s store, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	c, err := ofTheEntry(ctx, s, key, c)
	if err != nil {
		return false, err
	}
	return s.Settle(ctx, key, c, receipt, keep)
}

// sweepingRelease removes receipts too.
func sweepingRelease(ctx context.Context, s store, key string, c lock.Claim) (bool, error) {
	return s.Forget(ctx, key, c.Token)
}

// tardy releases in the background.
func tardy(ctx context.Context, s store, key string, c lock.Claim) (bool, error) {
	time.AfterFunc(5*time.Millisecond, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patienceOfCall)
		defer cancel()
		_, _ = s.Release(ctx, key, c)
	})
	return true, nil
}

// necromancer renews an entry that is gone.
func necromancer(ctx context.Context, s store, key string, c lock.Claim) (bool, error) {
	ok, err := s.Renew(ctx, key, c)
	if err != nil || ok {
		return ok, err
	}
	e, err := s.Claim(ctx, key, c)
	return e.Token == c.Token, err
}

// hasty says of every claim without an answer that it did not happen.
func hasty(ctx context.Context, s store, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Claim(ctx, key, c)
	if err != nil {
		err = fmt.Errorf("%w: %w", lock.ErrNotApplied, err)
	}
	return e, err
}

// greedy claims what others hold.
func greedy(ctx context.Context, s store, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Claim(ctx, key, c)
	if err != nil || e.State != lock.Held || e.Token == c.Token {
		return e, err
	}
	if _, err := s.Release(ctx, key, lock.Claim{Token: e.Token}); err != nil {
		return lock.Entry{}, err
	}
	return s.Claim(ctx, key, c)
}

// usurper takes over what is still held.
func usurper(ctx context.Context, s store, key string, c lock.Claim) (lock.Entry, error) {
	if c.Replaces != "" {
		if _, err := s.Release(ctx, key, lock.Claim{Token: c.Replaces}); err != nil {
			return lock.Entry{}, err
		}
	}
	return s.Claim(ctx, key, c)
}

// anyones takes over every abandoned entry.
func anyones(ctx context.Context, s store, key string, c lock.Claim) (lock.Entry, error) {
	if c.Replaces != "" {
		e, err := s.Get(ctx, key)
		if err != nil {
			return lock.Entry{}, err
		}
		c.Replaces = e.Token
	}
	return s.Claim(ctx, key, c)
}

// unguarded claims on when its caller has given up.
func unguarded(ctx context.Context, s store, key string, c lock.Claim) (e lock.Entry, err error) {
	answered := make(chan struct{})
	var late lock.Entry
	var failed error
	go func() {
		defer close(answered)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*patienceOfCall)
		defer cancel()
		late, failed = s.Claim(ctx, key, c)
	}()
	select {
	case <-answered:
		return late, failed
	case <-ctx.Done():
		return e, ctx.Err()
	}
}

// cached reads what was read before.
func cached() reads {
	read := new(sync.Map)
	return func(ctx context.Context, s store, key string) (lock.Entry, error) {
		if e, ok := read.Load(key); ok {
			return e.(lock.Entry), nil
		}
		e, err := s.Get(ctx, key)
		if err == nil {
			read.Store(key, e)
		}
		return e, err
	}
}

// reading has entries changed before a client sees them.
func reading(change func(e *lock.Entry)) reads {
	return func(ctx context.Context, s store, key string) (lock.Entry, error) {
		e, err := s.Get(ctx, key)
		change(&e)
		return e, err
	}
}

// doubled says that twice as much is left of a lease.
func doubled(e *lock.Entry) { e.Left *= 2 }

// first has the same fence for every claim.
func first(e *lock.Entry) { e.Fence = min(e.Fence, 1) }

func coarse(ctx context.Context, s store, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Claim(ctx, key, c)
	first(&e)
	return e, err
}

// stretched makes leases that are shorter or longer than what was asked for, and never says how
// much is left of one.
func stretched(by float64) wrong {
	return wrong{claim: func(ctx context.Context, s store, key string, c lock.Claim) (lock.Entry, error) {
		asked := c.Lease
		c.Lease = time.Duration(float64(asked) * by)
		e, err := s.Claim(ctx, key, c)
		if e.Left = 0; e.State == lock.Held && e.Token == c.Token {
			e.Left = asked
		}
		return e, err
	}, get: reading(func(e *lock.Entry) { e.Left = 0 })}
}
