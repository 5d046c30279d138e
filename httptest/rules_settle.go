package latchtest

import (
	"time"

	"github.com/httplatch/httplatch/lock"
)

func settleRules() []rule {
	return []rule{
		{
			"settle_keeps_receipt",
			"a settled key keeps the receipt, with token, attempt, fingerprint and owner of the claim, for as long as asked, be that shorter or longer than the lease",
			settleKeepsReceipt,
		},
		{
			"settle_expires",
			"a receipt is gone when its keep is over, and not before",
			settleExpires,
		},
		{
			"settle_after_lapse",
			"a key that is Abandoned can be settled by the token that held it",
			settleAfterLapse,
		},
		{
			"settle_not_ours",
			"only the token that holds a key settles it, and no token settles a key that is free",
			settleNotOurs,
		},
		{
			"settle_twice_unchanged",
			"a second settle of the same token returns true and changes neither the receipt nor its keep",
			settleTwiceUnchanged,
		},
	}
}

func settleKeepsReceipt(p *probe) {
	key, c := p.key(), p.claimOf("a", p.brief(), p.long)
	c.Attempt = 3
	p.claim(key, c)
	p.settle("by the holder", true, key, "a", []byte("done"), 2*p.long)
	p.waitOutShort()
	e := p.get(key)
	p.wantReceipt("Get after the lease that was settled", e, c, []byte("done"))
	p.wantLeft("Get of a receipt", e, p.long, 2*p.long)
	e = p.try(key, p.claimOf("b", p.long, 0))
	p.wantReceipt("Claim of a settled key", e, c, []byte("done"))
	p.wantLeft("Claim of a settled key", e, p.long, 2*p.long)
}

func settleExpires(p *probe) {
	key := p.key()
	p.claim(key, p.claimOf("a", p.long, p.long))
	began := time.Now()
	p.settle("by the holder", true, key, "a", []byte("done"), p.short)
	e := p.waitWhile(key, lock.Settled)
	if lasted := time.Since(began); lasted < p.short*9/10-2*time.Millisecond {
		p.failf("a receipt to be kept for %v was gone after %v", p.short, lasted)
	}
	if e.State != lock.Free {
		p.failf("Get after the keep = %s, want a free key", show(e))
	}
	p.settle("of a key that is free again", false, key, "a", []byte("late"), p.long)
	p.claim(key, p.claimOf("b", p.long, 0))
}

func settleAfterLapse(p *probe) {
	key, c := p.key(), p.claimOf("a", p.short, p.long)
	p.lapse(key, c)
	p.settle("of an abandoned key by its token", true, key, "a", []byte("done"), p.long)
	p.wantReceipt("Get after it", p.get(key), c, []byte("done"))
}

func settleNotOurs(p *probe) {
	key, a := p.key(), p.claimOf("a", p.long, 0)
	p.settle("of a key that was never used", false, key, "stranger", []byte("x"), p.long)
	p.wantFree("after it", key)

	p.claim(key, a)
	p.settle("by another", false, key, "b", []byte("x"), p.long)
	p.wantClaim("Get after it", p.get(key), lock.Held, a)
	p.settle("by the holder", true, key, "a", []byte("done"), p.long)
	p.settle("by another, over a receipt", false, key, "b", []byte("x"), p.long)
	p.wantReceipt("Get after it", p.get(key), a, []byte("done"))

	key, a = p.key(), p.claimOf("a", p.short, p.long)
	p.lapse(key, a)
	p.settle("of an abandoned key by another", false, key, "b", []byte("x"), p.long)
	p.wantClaim("Get after it", p.get(key), lock.Abandoned, a)

	key = p.key()
	p.lapse(key, p.claimOf("a", p.short, 0))
	p.settle("of a key whose lease ended", false, key, "a", []byte("late"), p.long)
	p.wantFree("after it", key)
}

func settleTwiceUnchanged(p *probe) {
	key, c := p.key(), p.claimOf("a", p.long, 0)
	p.claim(key, c)
	p.settle("by the holder", true, key, "a", []byte("first"), p.long)
	p.letComplete()
	p.settle("a second time, for short", true, key, "a", []byte("second"), p.short)
	p.settle("a third time, for longer", true, key, "a", nil, 3*p.long)
	p.waitOutShort()
	e := p.get(key)
	p.wantReceipt("Get after it", e, c, []byte("first"))
	p.wantLeft("Get after it", e, p.long/2, p.long)
}
