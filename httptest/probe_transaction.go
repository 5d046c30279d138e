package latchtest

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

// transactor returns the store, if it has transactions.
func (p *probe) transactor() (lock.Transactor, error) {
	if err := lock.Describe(p.store).NoTransactions; err != nil {
		return nil, err
	}
	t, _ := p.store.(lock.Transactor)
	return t, nil
}

// needsTransactions skips the rule over a store without transactions.
func (p *probe) needsTransactions() {
	p.Helper()
	if _, err := p.transactor(); err != nil {
		p.Skipf("the store has no transactions: %v", err)
	}
}

// record returns an unused key of a record of Once, such as a Locker uses for transactions. A store
// may remove the row of any other key as soon as its lease has ended.
func (*probe) record() string { return keytext.RecordPrefix + "latchtest=" + rand.Text() }

// opened is a transaction under the test of a rule.
type opened struct {
	*probe

	work context.Context //nolint:containedctx // as Begin has returned it
	lock.Transaction
}

// begin begins a transaction.
func (p *probe) begin(key, token string) *opened {
	p.Helper()
	tx, err := p.tryBegin(p.Context(), key, token)
	if err != nil {
		p.failf("Begin: %v", err)
	}
	return tx
}

// tryBegin begins a transaction. The timeout is for the call, and not for the
// transaction.
func (p *probe) tryBegin(ctx context.Context, key, token string) (*opened, error) {
	p.Helper()
	t, err := p.transactor()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(callTimeout, cancel)
	work, tx, err := t.Begin(ctx, key, token)
	timer.Stop()
	context.AfterFunc(p.Context(), cancel)
	if err != nil {
		cancel()
		return nil, err
	}
	return &opened{p, work, tx}, nil
}

func (o *opened) settle(what string, want bool, receipt []byte, keep time.Duration) {
	o.Helper()
	ctx, cancel := o.within()
	defer cancel()
	ok, err := o.Settle(ctx, receipt, keep)
	o.wantOK("Settle of a transaction "+what, want, ok, err)
}

func (o *opened) rollback(what string) {
	o.Helper()
	ctx, cancel := o.within()
	defer cancel()
	if err := o.Rollback(ctx); err != nil {
		o.failf("Rollback %s: %v", what, err)
	}
}

// outcome calls Outcome until there is an answer.
func (o *opened) outcome() bool {
	o.Helper()
	ctx, cancel := o.within()
	defer cancel()
	for {
		committed, err := o.Outcome(ctx)
		switch {
		case err == nil:
			return committed
		case ctx.Err() != nil:
			o.failf("Outcome has no answer after %v: %v", callTimeout, err)
		}
		timer := time.NewTimer(10 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

func (o *opened) wantOutcome(when string, want bool) {
	o.Helper()
	if got := o.outcome(); got != want {
		o.failf("Outcome %s = %t, want %t", when, got, want)
	}
}
