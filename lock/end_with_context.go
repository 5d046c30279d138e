package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// EndWithContext returns store for a [Locker] if the calls of store do not return when
// their contexts end, as [Store] demands: because a driver ignores its context, or
// obeys it late. Each call then costs a goroutine, which goes on until store returns,
// and the Locker counts what it may still do. It panics if store is nil.
//
// Of what store can do beyond the interface, MaxLag and [Inspector] remain; the calls
// of the latter are made as they are.
func EndWithContext(store Store) Store {
	if store == nil {
		panic("lock: EndWithContext: nil Store")
	}
	bounded := endsWithContext{store}
	if inspector, ok := store.(Inspector); ok {
		return struct {
			endsWithContext
			Inspector
		}{bounded, inspector}
	}
	return bounded
}

type endsWithContext struct{ store Store }

// Claim is part of [Store].
func (s endsWithContext) Claim(ctx context.Context, key string, c Claim) (Entry, error) {
	return untilEnd[Entry](ctx, claimRequest{s.store, key, c})
}

// Renew is part of [Store].
func (s endsWithContext) Renew(ctx context.Context, key string, c Claim) (ok bool, err error) {
	return untilEnd[bool](ctx, renewRequest{s.store, key, c})
}

// Settle is part of [Store].
func (s endsWithContext) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (ok bool, err error) {
	return untilEnd[bool](ctx, settleRequest{releaseRequest{s.store, key, token}, receipt, keep})
}

// Release is part of [Store].
func (s endsWithContext) Release(ctx context.Context, key, token string) (ok bool, err error) {
	return untilEnd[bool](ctx, releaseRequest{s.store, key, token})
}

// Get is part of [Store].
func (s endsWithContext) Get(ctx context.Context, key string) (Entry, error) {
	return untilEnd[Entry](ctx, getRequest{s.store, key})
}

// MaxLag is that of the store.
func (s endsWithContext) MaxLag() time.Duration { return lagOf(s.store) }

// untilEnd makes a call on a goroutine of its own, and returns when ctx ends.
func untilEnd[T any, R send.Request[T]](ctx context.Context, r R) (value T, err error) {
	if ctx.Err() != nil {
		return value, fmt.Errorf("%w: %w", ErrNotApplied, context.Cause(ctx))
	}
	type reply struct {
		value T
		err   error
	}
	replies := make(chan reply, 1)
	over := make(chan send.Outcome, 1)
	go func() {
		a := reply{err: errNotReturned}
		defer func() {
			replies <- a
			over <- outcomeOf(a.err)
		}()
		defer send.Recover(&a.err)
		a.value, a.err = r.Send(ctx)
	}()
	select {
	case a := <-replies:
		return a.value, a.err
	case <-ctx.Done():
	}
	flight := send.InFlight(ctx)
	flight.Depart()
	go func() { flight.Arrive(<-over) }()
	return value, context.Cause(ctx)
}

// outcomeOf is what a call has left that ended with err after its caller had gone.
func outcomeOf(err error) send.Outcome {
	switch {
	case err == nil:
		return send.Answered
	case errors.Is(err, ErrNotApplied):
		return send.Nothing
	default:
		return send.Lost
	}
}
