package latchtest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Begin implements [lock.Transactor], if the inner store does. A settle of the transaction has the
// same faults as a [Settle] of the store.
func (d *disturbed) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	within, ok := d.Store.(lock.Transactor)
	if !ok {
		return nil, nil, errors.Join(lock.ErrNotApplied, lock.Describe(d.Store).NoTransactions)
	}
	work, tx, err := within.Begin(ctx, key, token)
	if err != nil {
		return nil, nil, err
	}
	return work, &disturbedTransaction{Transaction: tx, store: d, key: key, turn: make(chan struct{}, 1)}, nil
}

// disturbedTransaction is a transaction that has a fault in its settle. A delayed settle
// is not sent after Outcome was called: its session has ended.
type disturbedTransaction struct {
	lock.Transaction

	store *disturbed
	key   string
	turn  chan struct{} // has a value while a call is made
	asked bool          // Outcome was called
}

// Settle implements [lock.Transaction].
func (t *disturbedTransaction) Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	if !t.store.meets(ctx, Settle, t.key) {
		return t.Transaction.Settle(ctx, receipt, keep)
	}
	receipt = bytes.Clone(receipt)
	return false, t.store.fault(ctx, Settle, func(ctx context.Context) {
		t.turn <- struct{}{}
		defer func() { <-t.turn }()
		if !t.asked {
			_, _ = t.Transaction.Settle(ctx, receipt, keep)
		}
	})
}

// Outcome implements [lock.Transaction].
func (t *disturbedTransaction) Outcome(ctx context.Context) (committed bool, err error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { <-t.turn }()
	t.asked = true
	return t.Transaction.Outcome(ctx)
}
