package fault

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// calls implements the calls of a [lock.Store] on their way to server.
type calls struct {
	server func() lock.Store // returns the store that serves a call at its arrival
	draw   func(Op) Func     // the fault of the next call; nil: none
}

// pass makes a call. A call that is applied after its return shares no memory with its caller.
func pass[T any](ctx context.Context, c calls, op Op, call func(context.Context, lock.Store) (T, error)) (T, error) {
	var mu sync.Mutex
	var value T
	apply := func() error {
		v, err := call(context.WithoutCancel(ctx), c.server())
		mu.Lock()
		defer mu.Unlock()
		value = v
		return err
	}
	meets := c.draw(op)
	if meets == nil {
		meets = func(_ context.Context, apply func() error) error { return apply() }
	}
	err := meets(ctx, apply)
	mu.Lock()
	defer mu.Unlock()
	return value, err
}

// Claim is part of [lock.Store].
func (c calls) Claim(ctx context.Context, key string, claim lock.Claim) (lock.Entry, error) {
	return pass(ctx, c, Claim, func(ctx context.Context, s lock.Store) (lock.Entry, error) { return s.Claim(ctx, key, claim) })
}

// Renew is part of [lock.Store].
func (c calls) Renew(ctx context.Context, key string, claim lock.Claim) (bool, error) {
	return pass(ctx, c, Renew, func(ctx context.Context, s lock.Store) (bool, error) { return s.Renew(ctx, key, claim) })
}

// Settle is part of [lock.Store].
func (c calls) Settle(ctx context.Context, key string, claim lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	return pass(ctx, c, Settle, func(ctx context.Context, s lock.Store) (bool, error) {
		return s.Settle(ctx, key, claim, receipt, keep)
	})
}

// Release is part of [lock.Store].
func (c calls) Release(ctx context.Context, key string, claim lock.Claim) (bool, error) {
	return pass(ctx, c, Release, func(ctx context.Context, s lock.Store) (bool, error) { return s.Release(ctx, key, claim) })
}

// ClaimSet is part of [lock.SetClaimer], if the server is one. It has the faults of a Claim.
func (c calls) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (inTheWay lock.Entry, err error) {
	return pass(ctx, c, Claim, func(ctx context.Context, s lock.Store) (lock.Entry, error) {
		sets, is := s.(lock.SetClaimer)
		if !is {
			return lock.Entry{}, errNoSets
		}
		return sets.ClaimSet(ctx, keys, claims)
	})
}

var errNoSets = fmt.Errorf("fault: the server claims no sets at once: %w", errors.ErrUnsupported)

// Amend is part of [lock.Amender], if the server is one.
func (c calls) Amend(ctx context.Context, key, token string, from, to []byte) (bool, error) {
	return pass(ctx, c, Amend, func(ctx context.Context, s lock.Store) (bool, error) {
		amender, ok := s.(lock.Amender)
		if !ok {
			return false, lock.Describe(s).NoAmends
		}
		return amender.Amend(ctx, key, token, from, to)
	})
}

// Get is part of [lock.Store].
func (c calls) Get(ctx context.Context, key string) (lock.Entry, error) {
	return pass(ctx, c, Get, func(ctx context.Context, s lock.Store) (lock.Entry, error) { return s.Get(ctx, key) })
}
