package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// EndWithContext wraps a store whose calls do not return when their contexts end, as [Store]
// demands: because its driver ignores the context, or obeys it late. Each call then costs a
// goroutine, which goes on until store returns, and the Locker takes into account that the call
// may have an effect later.
//
// The wrapper has the optional interfaces of store. It passes on the calls of an [Inspector]
// unchanged. If the calls of store wait for nothing, EndWithContext returns store itself. It
// panics if store is nil.
func EndWithContext(store Store) Store {
	if store == nil {
		panic("lock: EndWithContext: nil Store")
	}
	if Describe(store).Local {
		return store
	}
	return endsWithContext{store}
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
func (s endsWithContext) Settle(ctx context.Context, key string, c Claim, receipt []byte, keep time.Duration) (ok bool, err error) {
	return untilEnd(ctx, func() (bool, error) { return s.store.Settle(ctx, key, c, receipt, keep) })
}

// Release is part of [Store].
func (s endsWithContext) Release(ctx context.Context, key string, c Claim) (ok bool, err error) {
	return untilEnd(ctx, func() (bool, error) { return s.store.Release(ctx, key, c) })
}

// Get is part of [Store].
func (s endsWithContext) Get(ctx context.Context, key string) (Entry, error) {
	return untilEnd(ctx, func() (Entry, error) { return s.store.Get(ctx, key) })
}

// Describe is part of [Describer].
func (s endsWithContext) Describe() Description { return Describe(s.store) }

// Watch is part of [Watcher].
func (s endsWithContext) Watch(key string) (wake <-chan struct{}, stop func()) {
	return watchOf(s.store)(key)
}

// Check is part of [Checker]. If the store is not a Checker, it makes a Get.
func (s endsWithContext) Check(ctx context.Context) error {
	_, err := untilEnd(ctx, func() (struct{}, error) {
		if c, ok := s.store.(Checker); ok {
			return struct{}{}, c.Check(ctx)
		}
		_, err := s.store.Get(ctx, "check")
		return struct{}{}, err
	})
	return err
}

// Servers is part of [ServerLister]. If the store is not a ServerLister, it returns none.
func (s endsWithContext) Servers(ctx context.Context) (ids []string, err error) {
	if named, ok := s.store.(ServerLister); ok {
		return untilEnd(ctx, func() ([]string, error) { return named.Servers(ctx) })
	}
	return nil, nil
}

// List is part of [Inspector].
func (s endsWithContext) List(ctx context.Context) iter.Seq2[Entry, error] {
	if inspector, ok := s.store.(Inspector); ok {
		return inspector.List(ctx)
	}
	return func(yield func(Entry, error) bool) { yield(Entry{}, errNoInspector) }
}

// Page is part of [Pager].
func (s endsWithContext) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []Entry, next string, err error) {
	if pager, ok := s.store.(Pager); ok {
		return pager.Page(ctx, cursor, limit, match)
	}
	return nil, "", fmt.Errorf("lock: the store lists no pages: %w", errors.ErrUnsupported)
}

// Forget is part of [Inspector].
func (s endsWithContext) Forget(ctx context.Context, key, token string) (ok bool, err error) {
	if inspector, ok := s.store.(Inspector); ok {
		return inspector.Forget(ctx, key, token)
	}
	return false, errNoInspector
}

// Amend is part of [Amender], if the store is one.
func (s endsWithContext) Amend(ctx context.Context, key, token string, from, to []byte) (ok bool, err error) {
	amender := amenderOf(s.store)
	if amender == nil {
		return false, errNoAmender
	}
	return untilEnd(ctx, func() (bool, error) { return amender.Amend(ctx, key, token, from, to) })
}

// ClaimSet is part of [SetClaimer], if the store is one.
func (s endsWithContext) ClaimSet(ctx context.Context, keys []string, claims []Claim) (inTheWay Entry, err error) {
	sets := setClaimerOf(s.store)
	if sets == nil {
		return Entry{}, errNoSets
	}
	return untilEnd(ctx, func() (Entry, error) { return sets.ClaimSet(ctx, keys, claims) })
}

var errNoSets = fmt.Errorf("lock: the store claims no sets at once: %w", errors.ErrUnsupported)

var errNoInspector = fmt.Errorf("lock: the store is no Inspector: %w", errors.ErrUnsupported)

// untilEnd makes a call on its own goroutine, and returns when ctx ends.
func untilEnd[T any](ctx context.Context, call func() (T, error)) (answer T, err error) {
	if ctx.Err() != nil {
		return answer, fmt.Errorf("%w: %w", ErrNotApplied, context.Cause(ctx))
	}
	return waitFor(ctx, call)
}

// waitFor is untilEnd, but also makes the call if ctx has ended.
func waitFor[T any](ctx context.Context, call func() (T, error)) (answer T, err error) {
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

// Begin is part of [Transactor]. If the transaction begins after its caller has left, Begin rolls
// it back.
func (s endsWithContext) Begin(ctx context.Context, key, token string) (context.Context, Transaction, error) {
	transactor := transactorOf(s.store)
	if transactor == nil {
		return nil, nil, errNoTransactor
	}
	var b begun
	work, err := untilEnd(ctx, func() (context.Context, error) {
		work, tx, err := transactor.Begin(ctx, key, token)
		if err == nil {
			b.arrived(ctx, tx)
		}
		return work, err
	})
	if err != nil {
		b.left(ctx)
		return nil, nil, err
	}
	return work, &endsTransaction{b.tx, make(chan struct{}, 1)}, nil
}

// begun is a transaction that may begin after its caller has left.
type begun struct {
	mu   sync.Mutex
	tx   Transaction // nil: not begun yet
	gone bool
}

func (b *begun) arrived(ctx context.Context, tx Transaction) {
	b.mu.Lock()
	b.tx = tx
	gone := b.gone
	b.mu.Unlock()
	if gone {
		rollbackLeft(ctx, tx)
	}
}

func (b *begun) left(ctx context.Context) {
	b.mu.Lock()
	b.gone = true
	tx := b.tx
	b.mu.Unlock()
	if tx != nil { // it began at the moment at which its caller left
		go rollbackLeft(ctx, tx)
	}
}

// rollbackLeft ends a transaction without a caller.
func rollbackLeft(ctx context.Context, tx Transaction) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, _ = waitFor(ctx, func() (struct{}, error) { return struct{}{}, tx.Rollback(ctx) })
}

// endsTransaction is a [Transaction] whose calls return when their contexts end. A call that goes
// on without its caller ends before the next call begins. Only the error of the store shows
// whether a call had an effect: the end of the context does not.
type endsTransaction struct {
	tx   Transaction
	turn chan struct{} // holds a value during a call
}

// inTurn makes a call when the earlier ones are over, unless ctx ends first.
func inTurn[T any](ctx context.Context, t *endsTransaction, call func() (T, error)) (T, error) {
	return waitFor(ctx, func() (answer T, err error) {
		select {
		case t.turn <- struct{}{}:
			defer func() { <-t.turn }()
			return call()
		case <-ctx.Done():
			return answer, context.Cause(ctx)
		}
	})
}

// Settle is part of [Transaction].
func (t *endsTransaction) Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	return inTurn(ctx, t, func() (bool, error) { return t.tx.Settle(ctx, receipt, keep) })
}

// Outcome is part of [Transaction].
func (t *endsTransaction) Outcome(ctx context.Context) (committed bool, err error) {
	return inTurn(ctx, t, func() (bool, error) { return t.tx.Outcome(ctx) })
}

// Rollback is part of [Transaction].
func (t *endsTransaction) Rollback(ctx context.Context) error {
	_, err := inTurn(ctx, t, func() (struct{}, error) { return struct{}{}, t.tx.Rollback(ctx) })
	return err
}
