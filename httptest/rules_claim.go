package latchtest

import "github.com/httplatch/httplatch/lock"

func claimRules() []rule {
	return []rule{
		{
			"absent_is_zero",
			"a key with no entry reads as the zero Entry, and no error",
			absentIsZero,
		},
		{
			"claim_takes_free",
			"a claim of a free key is granted: Held, with all that was claimed",
			claimTakesFree,
		},
		{
			"claim_same_token_again",
			"a claim that is sent again for the same token is granted again: the answer to the first may have been lost",
			claimSameTokenAgain,
		},
		{
			"claim_other_refused_unchanged",
			"a claim of a held key returns the holder's entry and changes nothing",
			claimOtherRefusedUnchanged,
		},
		{
			"claim_own_receipt_is_no_grant",
			"a claim of a settled key returns the receipt and changes nothing, to the token that left it as to any other",
			claimOwnReceiptIsNoGrant,
		},
		{
			"get_reports",
			"Get reports what is under the key and when it ends, and changes nothing",
			getReports,
		},
	}
}

func absentIsZero(p *probe) {
	e := p.get(p.key())
	if e.State != lock.Free || e.Token != "" || e.Attempt != 0 || e.Owner != "" || e.Left != 0 || e.Fence != 0 ||
		len(e.Fingerprint) != 0 || len(e.Receipt) != 0 {
		p.failf("Get of a key that was never used = %+v, want the zero Entry", e)
	}
}

func claimTakesFree(p *probe) {
	for _, attempt := range []int{1, 7} {
		key, c := p.key(), p.claimOf("a", p.long, 0)
		c.Attempt = attempt
		p.claim(key, c)
		p.wantClaim("Get after a claim", p.get(key), lock.Held, c)
	}
	key, bare := p.key(), lock.Claim{Token: "a", Lease: p.long}
	p.claim(key, bare)
	p.wantClaim("Get after a claim with no more than a token and a lease", p.get(key), lock.Held, bare)
}

func claimSameTokenAgain(p *probe) {
	key, c := p.key(), p.claimOf("a", p.long, 0)
	p.claim(key, c)
	for range 3 {
		p.wantClaim("Claim sent again", p.try(key, c), lock.Held, c)
	}
	p.wantClaim("Get after it", p.get(key), lock.Held, c)
	p.release("after it", true, key, "a")
	p.wantFree("after that", key)
}

func claimOtherRefusedUnchanged(p *probe) {
	key, a, b := p.key(), p.claimOf("a", p.long, 0), p.claimOf("b", p.long, p.long)
	b.Attempt = 2
	p.claim(key, a)
	p.wantClaim("Claim of a held key", p.try(key, b), lock.Held, a)
	p.wantClaim("Get after it", p.get(key), lock.Held, a)
	p.release("by the holder", true, key, "a")
	p.claim(key, b)
}

func claimOwnReceiptIsNoGrant(p *probe) {
	key, c, receipt := p.key(), p.claimOf("a", p.long, 0), []byte("done")
	p.claim(key, c)
	p.settle("of a held key", true, key, "a", receipt, p.long)
	p.wantReceipt("Claim of a settled key by the token that settled it", p.try(key, c), c, receipt)
	p.wantReceipt("Claim of a settled key by another", p.try(key, p.claimOf("b", p.long, 0)), c, receipt)
	p.wantReceipt("Get after it", p.get(key), c, receipt)
}

func getReports(p *probe) {
	key, c := p.key(), p.claimOf("a", p.long, 3*p.long)
	p.claim(key, c)
	e := p.get(key)
	p.wantClaim("Get of a held key", e, lock.Held, c)
	p.wantLeft("Get of a held key", e, p.long/2, p.long)
	p.settle("of a held key", true, key, "a", []byte("done"), 2*p.long)
	e = p.get(key)
	p.wantReceipt("Get of a settled key", e, c, []byte("done"))
	p.wantLeft("Get of a settled key", e, p.long, 2*p.long)

	key, c = p.key(), p.claimOf("a", p.short, p.long)
	p.lapse(key, c)
	e = p.get(key)
	p.wantClaim("Get of an abandoned key", e, lock.Abandoned, c)
	p.wantLeft("Get of an abandoned key", e, p.long/2, p.long)
	p.wantClaim("Get of it again", p.get(key), lock.Abandoned, c)
}
