package latchtest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Begin is part of [lock.Transactor], if the store within is one. What a settle of the
// transaction meets is what a [Settle] of the store would.
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

// disturbedTransaction is one whose settle meets a fault. What is sent late is not sent
// any more once the outcome was asked for, after which there is no session for it.
type disturbedTransaction struct {
	lock.Transaction

	store *disturbed
	key   string
	turn  chan struct{} // has a value while a call is made
	over  bool
}

// Settle is part of [lock.Transaction].
func (t *disturbedTransaction) Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	if !t.store.meets(ctx, Settle, t.key) {
		return t.Transaction.Settle(ctx, receipt, keep)
	}
	receipt = bytes.Clone(receipt)
	return false, t.store.fault(ctx, Settle, func(ctx context.Context) {
		t.turn <- struct{}{}
		defer func() { <-t.turn }()
		if !t.over {
			_, _ = t.Transaction.Settle(ctx, receipt, keep)
		}
	})
}

// Outcome is part of [lock.Transaction].
func (t *disturbedTransaction) Outcome(ctx context.Context) (committed bool, err error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { <-t.turn }()
	t.over = true
	return t.Transaction.Outcome(ctx)
}
