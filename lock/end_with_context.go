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
// and the Locker counts what it may still do.
//
// What store can do beyond the interface remains. The calls of an [Inspector] are made
// as they are. A store of [NewMemory] or [NewQuorum] is returned as it is: its calls do
// end. EndWithContext panics if store is nil, and if it is one of [NewSealed]: seal what
// EndWithContext returns.
func EndWithContext(store Store) Store {
	if store == nil {
		panic("lock: EndWithContext: nil Store")
	}
	if isPrompt(store) || quorumIn(store) != nil {
		return store
	}
	switch store.(type) {
	case *sealed, sealedInspector: // a quorum, which must not have one as a node, would not see it
		panic("lock: EndWithContext of a sealed store: seal what it returns, NewSealed(EndWithContext(store), aead)")
	}
	bounded := endsWithContext{store}
	if inspector, ok := store.(Inspector); ok {
		return inspectedWithContext{bounded, inspector}
	}
	return bounded
}

type endsWithContext struct{ store Store }

// Claim is part of [Store].
func (s endsWithContext) Claim(ctx context.Context, key string, c Claim) (Entry, error) {
	return untilEnd(ctx, func() (Entry, error) { return s.store.Claim(ctx, key, c) })
}

// Renew is part of [Store].
func (s endsWithContext) Renew(ctx context.Context, key string, c Claim) (ok bool, err error) {
	return untilEnd(ctx, func() (bool, error) { return s.store.Renew(ctx, key, c) })
}

// Settle is part of [Store].
func (s endsWithContext) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (ok bool, err error) {
	return untilEnd(ctx, func() (bool, error) { return s.store.Settle(ctx, key, token, receipt, keep) })
}

// Release is part of [Store].
func (s endsWithContext) Release(ctx context.Context, key, token string) (ok bool, err error) {
	return untilEnd(ctx, func() (bool, error) { return s.store.Release(ctx, key, token) })
}

// Get is part of [Store].
func (s endsWithContext) Get(ctx context.Context, key string) (Entry, error) {
	return untilEnd(ctx, func() (Entry, error) { return s.store.Get(ctx, key) })
}

// MaxLag is that of the store.
func (s endsWithContext) MaxLag() time.Duration { return lagOf(s.store) }

// LocksOnly is that of the store.
func (s endsWithContext) LocksOnly() error { return locksOnly(s.store) }

// Watch is that of the store.
func (s endsWithContext) Watch(key string) (wake <-chan struct{}, stop func()) {
	return hintsOf(s.store)(key)
}

// Check is that of the store, or a Get where it has none.
func (s endsWithContext) Check(ctx context.Context) error {
	_, err := untilEnd(ctx, func() (struct{}, error) { return struct{}{}, checkOf(ctx, s.store) })
	return err
}

// Servers is that of the store. One that does not name any has none.
func (s endsWithContext) Servers(ctx context.Context) (ids []string, err error) {
	if named, ok := s.store.(serverNamer); ok {
		return untilEnd(ctx, func() ([]string, error) { return named.Servers(ctx) })
	}
	return nil, nil
}

// inspectedWithContext is endsWithContext over an [Inspector].
type inspectedWithContext struct {
	endsWithContext
	Inspector
}

// Page is the optional part of [Inspector], if the store has it.
func (s inspectedWithContext) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []Entry, next string, err error) {
	return pageOf(ctx, s.Inspector, cursor, limit, match)
}

// untilEnd makes a call on a goroutine of its own, and returns when ctx ends.
func untilEnd[T any](ctx context.Context, call func() (T, error)) (answer T, err error) {
	if ctx.Err() != nil {
		return answer, fmt.Errorf("%w: %w", ErrNotApplied, context.Cause(ctx))
	}
	type result struct {
		answer T
		err    error
	}
	over := make(chan result, 1)
	go func() {
		r := result{err: errEndedGoroutine}
		defer func() { over <- r }()
		defer send.Recover(&r.err)
		r.answer, r.err = call()
	}()
	select {
	case r := <-over:
		return r.answer, r.err
	case <-ctx.Done():
	}
	flight := send.InFlight(ctx)
	flight.Depart()
	go func() {
		switch r := <-over; {
		case r.err == nil:
			flight.Arrive(send.Answered)
		case errors.Is(r.err, ErrNotApplied):
			flight.Arrive(send.Nothing)
		default:
			flight.Arrive(send.Lost)
		}
	}()
	return answer, context.Cause(ctx)
}

var errEndedGoroutine = errors.New("lock: the store ended the goroutine of a call")
