package lock

import (
	"context"
	"sync"
	"time"
)

// Begin is that of the store. A transaction that it returns when its caller has left is
// rolled back.
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

// begun is a transaction that may be there when its caller has left.
type begun struct {
	mu   sync.Mutex
	tx   Transaction // nil: not there yet
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
	if tx != nil { // it has arrived in the moment in which its caller left
		go rollbackLeft(ctx, tx)
	}
}

// rollbackLeft ends a transaction that no caller has.
func rollbackLeft(ctx context.Context, tx Transaction) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, _ = waitFor(ctx, func() (struct{}, error) { return struct{}{}, tx.Rollback(ctx) })
}

// endsTransaction is a [Transaction] whose calls return when their contexts end. One that
// its caller has left is over before the next begins. What their errors say of an effect is
// the store's word alone: that a context had ended before says nothing.
type endsTransaction struct {
	tx   Transaction
	turn chan struct{} // has a value while a call is made
}

// inTurn makes a call when those before it are over, unless ctx ends first.
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
