package fault

import (
	"context"
	"errors"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// far is a store behind a network, which [Store] and [Network] are.
type far interface {
	lock.Store
	lock.Describer
	lock.SetClaimer
	lock.Amender
}

// Apart returns s with each call on a goroutine of its own. A caller leaves its call behind when its
// context ends, as a client does whose connections are shared: the call may be applied later, and
// its flight reports the end.
func Apart(s far) lock.Store { return apart{s} }

type apart struct{ far }

// leave makes a call that goes on when ctx has ended.
func leave[T any](ctx context.Context, call func() (T, error)) (answer T, err error) {
	if ctx.Err() != nil {
		return answer, errors.Join(lock.ErrNotApplied, context.Cause(ctx))
	}
	type result struct {
		answer T
		err    error
	}
	over := make(chan result, 1)
	go func() {
		var r result
		defer func() { over <- r }()
		defer send.Recover(&r.err)
		r.answer, r.err = call()
	}()
	select {
	case r := <-over:
		return r.answer, r.err
	case <-ctx.Done():
	}
	flight := send.Depart(ctx)
	go func() {
		switch r := <-over; {
		case r.err == nil:
			flight.Arrive(send.Answered)
		case errors.Is(r.err, lock.ErrNotApplied):
			flight.Arrive(send.Nothing)
		default:
			flight.Arrive(send.Unanswered)
		}
	}()
	return answer, context.Cause(ctx)
}

// Claim is part of [lock.Store].
func (s apart) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return leave(ctx, func() (lock.Entry, error) { return s.far.Claim(ctx, key, c) })
}

// Renew is part of [lock.Store].
func (s apart) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return leave(ctx, func() (bool, error) { return s.far.Renew(ctx, key, c) })
}

// Settle is part of [lock.Store].
func (s apart) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	return leave(ctx, func() (bool, error) { return s.far.Settle(ctx, key, c, receipt, keep) })
}

// Release is part of [lock.Store].
func (s apart) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return leave(ctx, func() (bool, error) { return s.far.Release(ctx, key, c) })
}

// Get is part of [lock.Store].
func (s apart) Get(ctx context.Context, key string) (lock.Entry, error) {
	return leave(ctx, func() (lock.Entry, error) { return s.far.Get(ctx, key) })
}

// ClaimSet is part of [lock.SetClaimer].
func (s apart) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
	return leave(ctx, func() (lock.Entry, error) { return s.far.ClaimSet(ctx, keys, claims) })
}

// Amend is part of [lock.Amender].
func (s apart) Amend(ctx context.Context, key, token string, from, to []byte) (bool, error) {
	return leave(ctx, func() (bool, error) { return s.far.Amend(ctx, key, token, from, to) })
}
