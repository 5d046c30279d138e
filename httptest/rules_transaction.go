package latchtest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/httplatch/httplatch/lock"
)

func transactionReceiptRules() []rule {
	return []rule{
		{
			"transaction_settle_keeps_receipt",
			"a transaction that is settled leaves a receipt, with token, attempt, fingerprint and owner of the claim, and of the bytes that were passed, " +
				"whatever becomes of them later; its Outcome says so, and a Rollback no longer changes anything",
			transactionSettleKeepsReceipt,
		},
		{
			"transaction_receipt_expires",
			"the receipt of a transaction is gone when its keep is over, and not before",
			transactionReceiptExpires,
		},
		{
			"transaction_rollback_leaves_claim",
			"a transaction that is rolled back, or never spoken of again, leaves no receipt; the key stays its token's, to be renewed, released or settled",
			transactionRollbackLeavesClaim,
		},
		{
			"transaction_settle_after_lapse",
			"a transaction can be settled when its claim's lease has ended, with a linger or without, if no other token has the key",
			transactionSettleAfterLapse,
		},
		{
			"transaction_settle_after_takeover",
			"a transaction whose key another token has is not settled, and leaves the other's entry as it is",
			transactionSettleAfterTakeover,
		},
		{
			"transaction_settle_after_release",
			"a transaction whose key is free because it was released is not settled, and leaves it free",
			transactionSettleAfterRelease,
		},
	}
}

func transactionCallRules() []rule {
	return []rule{
		{
			"transaction_open_blocks_no_call",
			"while a transaction is open, all other calls are answered, for its own key too",
			transactionOpenBlocksNoCall,
		},
		{
			"transaction_two_at_once",
			"two transactions that are open at once, for two keys, end independently of each other",
			transactionTwoAtOnce,
		},
		{
			"transaction_context_is_derived",
			"the context that Begin returns has the values of the one that it was given, and ends with it; if that has ended, nothing is begun",
			transactionContextIsDerived,
		},
		{
			"transaction_outcome_is_true",
			"a Settle whose context ends while it runs returns within a second, with an error that matches ErrNotApplied only if there is no receipt, then or later; " +
				"and what Outcome answers after another error is so, and stays so",
			transactionOutcomeIsTrue,
		},
	}
}

func transactionSettleKeepsReceipt(p *probe) {
	p.needsTransactions()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, want := range [][]byte{[]byte("done"), nil, {0}, bytes.Repeat(all, 256)} {
		key, c := p.key(), p.claimOf("a", p.long, 0)
		c.Attempt = 3
		p.claim(key, c)
		tx := p.begin(key, "a")
		receipt := bytes.Clone(want)
		tx.settle("by the holder", true, receipt, 2*p.long)
		clear(receipt)
		e := p.get(key)
		p.wantReceipt("Get after it", e, c, want)
		p.wantLeft("Get after it", e, p.long, 2*p.long)
		clear(e.Receipt)
		tx.rollback("after Settle")
		tx.wantOutcome("after Settle", true)
		p.wantReceipt("Claim of a settled key", p.try(key, p.claimOf("b", p.long, 0)), c, want)
		p.release("of a receipt", false, key, "a")
	}
}

func transactionReceiptExpires(p *probe) {
	p.needsTransactions()
	key := p.key()
	p.claim(key, p.claimOf("a", p.long, p.long))
	tx := p.begin(key, "a")
	began := time.Now()
	tx.settle("by the holder", true, []byte("done"), p.short)
	e := p.waitWhile(key, lock.Settled)
	if lasted := time.Since(began); lasted < p.short*9/10-2*time.Millisecond {
		p.failf("a receipt to be kept for %v was gone after %v", p.short, lasted)
	}
	if e.State != lock.Free {
		p.failf("Get after the keep = %s, want a free key", show(e))
	}
	p.claim(key, p.claimOf("b", p.long, 0))
}

func transactionRollbackLeavesClaim(p *probe) {
	p.needsTransactions()
	for _, then := range []struct {
		name string
		end  func(key string)
	}{
		{"release", func(key string) {
			p.release("after a rollback", true, key, "a")
			p.wantFree("after it", key)
		}},
		{"settle", func(key string) {
			p.settle("after a rollback, outside of the transaction", true, key, "a", []byte("failed"), p.long)
			p.wantReceipt("Get after it", p.get(key), p.claimOf("a", p.long, 0), []byte("failed"))
		}},
	} {
		key, c := p.key(), p.claimOf("a", p.long/2, 0)
		p.claim(key, c)
		tx := p.begin(key, "a")
		tx.rollback("of what was begun")
		p.wantClaim("Get after a rollback", p.get(key), lock.Held, c)
		c.Lease = p.long
		p.renew("after a rollback", true, key, c)
		then.end(key)
		tx.rollback("for the second time")
	}
	key, c := p.key(), p.claimOf("a", p.long, 0)
	p.claim(key, c)
	tx := p.begin(key, "a")
	p.letComplete()
	p.wantClaim("Get while a transaction is open", p.get(key), lock.Held, c)
	tx.rollback("of what was begun")
}

func transactionSettleAfterLapse(p *probe) {
	p.needsTransactions()
	for _, linger := range []time.Duration{0, p.long} {
		key, c := p.record(), p.claimOf("a", p.short, linger)
		p.claim(key, c)
		tx := p.begin(key, "a")
		p.waitWhile(key, lock.Held)
		tx.settle("after the lease", true, []byte("late"), p.long)
		e := p.get(key)
		p.wantReceipt("Get after it", e, c, []byte("late"))
		p.wantLeft("Get after it", e, p.long/2, p.long)
	}
}

func transactionSettleAfterTakeover(p *probe) {
	p.needsTransactions()
	for _, linger := range []time.Duration{0, p.long} {
		for _, settled := range []bool{false, true} {
			key := p.key()
			p.claim(key, p.claimOf("a", p.short, linger))
			tx := p.begin(key, "a")
			p.waitWhile(key, lock.Held)
			b := p.claimOf("b", p.long, linger)
			if linger > 0 {
				b.Replaces = "a"
			}
			p.claim(key, b)
			if settled {
				p.settle("by the next holder", true, key, "b", []byte("theirs"), p.long)
			}
			tx.settle("by a late holder", false, []byte("mine"), 3*p.long)
			if settled {
				p.wantReceipt("Get after it", p.get(key), b, []byte("theirs"))
				continue
			}
			e := p.get(key)
			p.wantClaim("Get after it", e, lock.Held, b)
			p.wantLeft("Get after it", e, p.long/2, p.long)
			p.settle("by the next holder", true, key, "b", []byte("theirs"), p.long)
		}
	}
}

func transactionSettleAfterRelease(p *probe) {
	p.needsTransactions()
	key := p.key()
	p.claim(key, p.claimOf("a", p.long, 0))
	tx := p.begin(key, "a")
	p.release("while a transaction is open", true, key, "a")
	tx.settle("after a release", false, []byte("late"), p.long)
	p.wantFree("after it", key)
	p.claim(key, p.claimOf("b", p.long, 0))
}

func transactionOpenBlocksNoCall(p *probe) {
	p.needsTransactions()
	key, c := p.key(), p.claimOf("a", p.long, 0)
	p.claim(key, c)
	tx := p.begin(key, "a")
	p.renew("while its transaction is open", true, key, c)
	p.wantClaim("Claim by another while a transaction is open", p.try(key, p.claimOf("b", p.long, 0)), lock.Held, c)
	p.wantClaim("Claim by its own token while its transaction is open", p.try(key, c), lock.Held, c)
	p.settle("by another while a transaction is open", false, key, "b", nil, p.long)
	p.release("by another while a transaction is open", false, key, "b")
	other := p.key()
	p.claim(other, p.claimOf("b", p.long, 0))
	p.release("of another key while a transaction is open", true, other, "b")
	tx.settle("after all that", true, []byte("done"), p.long)
	p.wantReceipt("Get after it", p.get(key), c, []byte("done"))
}

func transactionTwoAtOnce(p *probe) {
	p.needsTransactions()
	for _, commits := range []bool{true, false} {
		first, second := p.key(), p.key()
		a, b := p.claimOf("a", p.long, 0), p.claimOf("b", p.long, 0)
		p.claim(first, a)
		p.claim(second, b)
		one, two := p.begin(first, "a"), p.begin(second, "b")
		two.settle("of the second", true, []byte("two"), p.long)
		p.wantClaim("Get of the first", p.get(first), lock.Held, a)
		if commits {
			one.settle("of the first", true, []byte("one"), p.long)
			p.wantReceipt("Get of the first", p.get(first), a, []byte("one"))
		} else {
			one.rollback("of the first")
			p.wantClaim("Get of the first", p.get(first), lock.Held, a)
		}
		p.wantReceipt("Get of the second", p.get(second), b, []byte("two"))
	}
}

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
