package latchtest

import "github.com/httplatch/httplatch/lock"

func renewRules() []rule {
	return []rule{
		{
			"renew_extends",
			"a renewal makes the lease end no earlier than asked, from now",
			renewExtends,
		},
		{
			"renew_never_shortens",
			"a renewal with a shorter lease or linger leaves the longer one as it is",
			renewNeverShortens,
		},
		{
			"renew_lengthens_linger",
			"a renewal with a longer linger than the entry's makes it that long",
			renewLengthensLinger,
		},
		{
			"renew_never_creates",
			"a renewal of a key that is free returns false and leaves it free",
			renewNeverCreates,
		},
		{
			"renew_not_ours",
			"only the token that holds a key renews it",
			renewNotOurs,
		},
		{
			"renew_revives_abandoned",
			"a renewal of an abandoned key by the token that held it makes it Held again",
			renewRevivesAbandoned,
		},
		{
			"renew_not_settled",
			"a renewal never changes a receipt or when it ends",
			renewNotSettled,
		},
	}
}

func renewExtends(p *probe) {
	key, c := p.key(), p.claimOf("a", p.brief(), p.long)
	p.claim(key, c)
	c.Lease, c.Longest = p.long, true
	p.renew("by the holder", true, key, c)
	p.waitOutShort()
	e := p.get(key)
	p.wantClaim("Get after the first lease", e, lock.Held, c)
	p.wantLeft("Get after a renewal", e, p.long/2, p.long)
	p.renew("by the holder, sent again", true, key, c)
}

func renewNeverShortens(p *probe) {
	key, c := p.key(), p.claimOf("a", p.long, 0)
	p.claim(key, c)
	p.renew("with a shorter lease", true, key, p.claimOf("a", p.short, 0))
	p.waitOutShort()
	p.wantClaim("Get after the shorter lease", p.get(key), lock.Held, c)

	p.needsReceipts()
	key, c = p.key(), p.claimOf("a", p.short, p.long)
	p.claim(key, c)
	p.renew("without the linger", true, key, p.claimOf("a", p.short, 0))
	p.wantClaim("Get after the lease", p.waitWhile(key, lock.Held), lock.Abandoned, c)
}

func renewLengthensLinger(p *probe) {
	p.needsReceipts()
	// The lease must not end before the renewal, because the entry would be gone. It has to end
	// after the renewal, to show the linger. If the renewal was too late, the next try has a longer
	// lease.
	for range 6 {
		key, c := p.key(), p.claimOf("a", p.short, 0)
		p.claim(key, c)
		ctx, cancel := p.within()
		ok, err := p.store.Renew(ctx, key, p.claimOf("a", p.short, p.long))
		cancel()
		if err != nil {
			p.failf("Renew with a linger: %v", err)
		}
		if ok {
			p.wantClaim("Get after the lease", p.waitWhile(key, lock.Held), lock.Abandoned, c)
			return
		}
		if e := p.get(key); e.State != lock.Free {
			p.failf("Renew by the holder = false, and the entry is %s", show(e))
		}
		p.short *= 2
	}
	p.failf("Renew by the holder = false, even with a lease of %v", p.short/2)
}

func renewNeverCreates(p *probe) {
	key, c := p.key(), p.claimOf("a", p.long, p.long)
	p.renew("of a key that was never used", false, key, c)
	p.wantFree("after it", key)

	p.claim(key, c)
	p.release("by the holder", true, key, "a")
	p.renew("of a key that was released", false, key, c)
	p.wantFree("after it", key)

	p.lapse(key, p.claimOf("a", p.short, 0))
	p.renew("of a key whose lease ended", false, key, c)
	p.wantFree("after it", key)
}

func renewNotOurs(p *probe) {
	key, a := p.key(), p.claimOf("a", p.long, 0)
	p.claim(key, a)
	p.renew("by another", false, key, p.claimOf("b", 3*p.long, 0))
	e := p.get(key)
	p.wantClaim("Get after it", e, lock.Held, a)
	p.wantLeft("Get after it", e, 0, p.long)

	key, a = p.key(), p.claimOf("a", p.short, p.long)
	p.lapse(key, a)
	p.renew("of an abandoned key by another", false, key, p.claimOf("b", p.long, 0))
	p.wantClaim("Get after it", p.get(key), lock.Abandoned, a)
}

func renewRevivesAbandoned(p *probe) {
	key, a := p.key(), p.claimOf("a", p.short, p.long)
	p.lapse(key, a)
	renewal := p.claimOf("a", p.long, 0)
	p.renew("of an abandoned key by its token", true, key, renewal)
	e := p.get(key)
	p.wantClaim("Get after it", e, lock.Held, a)
	p.wantLeft("Get after it", e, p.long/2, p.long)
	b := p.claimOf("b", p.long, 0)
	b.Replaces = "a"
	p.wantClaim("Claim with Replaces after it", p.try(key, b), lock.Held, a)
}

func renewNotSettled(p *probe) {
	key, c := p.key(), p.claimOf("a", p.long, 0)
	p.claim(key, c)
	p.settle("by the holder", true, key, "a", []byte("done"), p.long)
	p.renew("of a receipt, for short", false, key, p.claimOf("a", p.short, 0))
	p.renew("of a receipt, for longer", false, key, p.claimOf("a", 3*p.long, p.long))
	p.waitOutShort()
	e := p.get(key)
	p.wantReceipt("Get after it", e, c, []byte("done"))
	p.wantLeft("Get after it", e, p.long/2, p.long)
}
