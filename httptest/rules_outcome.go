package latchtest

import (
	"context"
	"errors"
	"time"

	"github.com/httplatch/httplatch/lock"
)

type valueKey struct{}

func transactionContextIsDerived(p *probe) {
	p.needsTransactions()
	key, c := p.key(), p.claimOf("a", p.long, 0)
	p.claim(key, c)
	ctx, cancel := context.WithCancel(context.WithValue(p.Context(), valueKey{}, "value"))
	tx, err := p.tryBegin(ctx, key, "a")
	if err != nil {
		p.failf("Begin: %v", err)
	}
	if tx.work.Value(valueKey{}) != "value" {
		p.failf("a value of the context that Begin was given is not in the one that it returned")
	}
	if err := tx.work.Err(); err != nil {
		p.failf("the context that Begin returned has ended: %v", err)
	}
	cancel()
	timer := time.NewTimer(callTimeout)
	defer timer.Stop()
	select {
	case <-tx.work.Done():
	case <-timer.C:
		p.failf("the context that Begin returned does not end with the one that it was given")
	}
	tx.rollback("after the end of its context")
	p.wantClaim("Get after it", p.get(key), lock.Held, c)

	if _, err := p.tryBegin(ctx, key, "a"); err == nil {
		p.failf("Begin with a context that had ended returned no error")
	}
	p.wantClaim("Get after it", p.get(key), lock.Held, c)
}

// transactionOutcomeIsTrue interrupts settles, from before they begin to shortly before
// they are done.
func transactionOutcomeIsTrue(p *probe) {
	p.needsTransactions()
	key := p.key()
	p.claim(key, p.claimOf("a", p.long, 0))
	tx, began := p.begin(key, "a"), time.Now()
	tx.settle("by the holder", true, []byte("done"), p.long)
	whole := time.Since(began)
	for i := range 2 * interruptions {
		p.interruptSettle(whole * time.Duration(i) / (2 * interruptions))
	}
}

// interruptSettle ends the context of a settle after the given time, and checks the results of
// Settle and Outcome against the store.
func (p *probe) interruptSettle(after time.Duration) {
	p.Helper()
	key, c := p.key(), p.claimOf("a", p.long, 0)
	p.claim(key, c)
	tx := p.begin(key, "a")
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	if after == 0 {
		cancel()
	} else {
		defer time.AfterFunc(after, cancel).Stop()
	}
	ok, err := p.settleWithin(ctx, tx)
	var committed bool
	switch {
	case err == nil && !ok:
		p.failf("Settle of a transaction that was interrupted = false, though nothing was in the way of it")
	case err == nil:
		committed = true
		tx.wantOutcome("after Settle = true", true)
	case errors.Is(err, lock.ErrNotApplied):
		tx.wantOutcome("after a Settle that was not applied", false)
	default:
		committed = tx.outcome()
	}
	for _, when := range []string{"at once", "a while later"} {
		if committed {
			p.wantReceipt("Get "+when+", after Settle returned the error "+text(err)+" and Outcome true,", p.get(key), c, []byte("done"))
		} else {
			p.wantClaim("Get "+when+", after Settle returned the error "+text(err)+" and Outcome false,", p.get(key), lock.Held, c)
		}
		if when == "at once" {
			p.waitOutShort()
		}
	}
	tx.wantOutcome("when it is asked again", committed)
	if !committed {
		p.release("of what was rolled back", true, key, "a")
	}
}

// settleWithin settles tx, and checks that it returns within a second of the end of ctx.
func (p *probe) settleWithin(ctx context.Context, tx *opened) (ok bool, err error) {
	p.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ok, err = tx.Settle(ctx, []byte("done"), p.long)
	}()
	select {
	case <-done:
		return ok, err
	case <-ctx.Done():
	}
	const steps = 20 // a machine that does not run the process for a while does not make its store late
	for range steps {
		timer := time.NewTimer(time.Second / steps)
		select {
		case <-done:
			timer.Stop()
			return ok, err
		case <-timer.C:
		}
	}
	p.failf("Settle of a transaction has not returned a second after the end of its context")
	return false, nil
}

func text(err error) string {
	if err == nil {
		return "nil"
	}
	return err.Error()
}
