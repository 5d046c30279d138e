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
// of the latter are made as they are. A store of [NewQuorum] is returned as it is: its
// calls do end.
func EndWithContext(store Store) Store {
	if store == nil {
		panic("lock: EndWithContext: nil Store")
	}
	if quorumIn(store) != nil {
		return store // its calls end
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
	r := &claimRequest{store: s.store, key: key, claim: c}
	if err := untilEnd(ctx, r); err != nil {
		return Entry{}, err
	}
	return r.entry, nil
}

// Renew is part of [Store].
func (s endsWithContext) Renew(ctx context.Context, key string, c Claim) (ok bool, err error) {
	r := &renewRequest{store: s.store, key: key, claim: c}
	err = untilEnd(ctx, r)
	return err == nil && r.ok, err
}

// Settle is part of [Store].
func (s endsWithContext) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (ok bool, err error) {
	r := &endRequest{store: s.store, key: key, token: token, receipt: receipt, keep: keep}
	err = untilEnd(ctx, r)
	return err == nil && r.ok, err
}

// Release is part of [Store].
func (s endsWithContext) Release(ctx context.Context, key, token string) (ok bool, err error) {
	return s.Settle(ctx, key, token, nil, 0)
}

// Get is part of [Store].
func (s endsWithContext) Get(ctx context.Context, key string) (Entry, error) {
	r := &getRequest{store: s.store, key: key}
	if err := untilEnd(ctx, r); err != nil {
		return Entry{}, err
	}
	return r.entry, nil
}

// MaxLag is that of the store.
func (s endsWithContext) MaxLag() time.Duration { return lagOf(s.store) }

// LocksOnly is that of the store.
func (s endsWithContext) LocksOnly() error { return locksOnly(s.store) }

// untilEnd makes a call on a goroutine of its own, and returns when ctx ends. The
// answer is in r if there is no error, and not to be looked at otherwise.
func untilEnd(ctx context.Context, r send.Request) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrNotApplied, context.Cause(ctx))
	}
	over := make(chan error, 1)
	go func() {
		err := errNotReturned
		defer func() { over <- err }()
		defer send.Recover(&err)
		err = r.Send(ctx)
	}()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
	}
	flight := send.InFlight(ctx)
	flight.Depart()
	go func() {
		switch err := <-over; {
		case err == nil:
			flight.Arrive(send.Answered)
		case errors.Is(err, ErrNotApplied):
			flight.Arrive(send.Nothing)
		default:
			flight.Arrive(send.Lost)
		}
	}()
	return context.Cause(ctx)
}
