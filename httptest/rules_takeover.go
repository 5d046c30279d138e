package latchtest

import "github.com/httplatch/httplatch/lock"

func takeoverRules() []rule {
	return []rule{
		{
			"replaces_takes_over",
			"a claim takes an abandoned key if Replaces names the token it was abandoned by; the entry is then the new claim's in all parts",
			replacesTakesOver,
		},
		{
			"replaces_needs_observed_token",
			"a claim whose Replaces names another token than an abandoned key's leaves it as it is",
			replacesNeedsObservedToken,
		},
		{
			"replaces_only_abandoned",
			"Replaces never takes a key that is Held or Settled",
			replacesOnlyAbandoned,
		},
		{
			"replaces_leaves_free",
			"a claim with Replaces does not take a free key: what it was to take over has ended, and a late one would come back as if it had not",
			replacesLeavesFree,
		},
	}
}

func replacesTakesOver(p *probe) {
	key, a := p.key(), p.claimOf("a", p.short, p.long)
	p.lapse(key, a)
	b := p.claimOf("b", p.short, p.long)
	b.Replaces, b.Attempt = "a", 2
	p.lapse(key, b)
	p.wantClaim("Get after the lease of the one that took over", p.get(key), lock.Abandoned, b)

	c := p.claimOf("c", p.long, 0)
	c.Replaces, c.Attempt, c.Fingerprint, c.Owner = "b", 3, nil, ""
	p.claim(key, c)
	e := p.try(key, c)
	p.wantClaim("Claim with Replaces sent again", e, lock.Held, c)
	p.wantLeft("Claim with Replaces sent again", e, p.long/2, p.long)
	p.wantClaim("Get after a second takeover", p.get(key), lock.Held, c)
	p.release("by the one that took over", true, key, "c")
	p.wantFree("after it", key)
}

func replacesNeedsObservedToken(p *probe) {
	key, a := p.key(), p.claimOf("token", p.short, p.long)
	p.lapse(key, a)
	for _, other := range []string{"toke", "token1", "TOKEN", "token\x00", "b"} {
		b := p.claimOf("b", p.long, 0)
		b.Replaces = other
		p.wantClaim("Claim with Replaces of another token", p.try(key, b), lock.Abandoned, a)
	}
	p.wantClaim("Get after it", p.get(key), lock.Abandoned, a)
}

func replacesOnlyAbandoned(p *probe) {
	key, a := p.key(), p.claimOf("a", p.long, p.long)
	p.claim(key, a)
	b := p.claimOf("b", p.long, 0)
	b.Replaces = "a"
	p.wantClaim("Claim with Replaces of a held key", p.try(key, b), lock.Held, a)
	p.wantClaim("Get after it", p.get(key), lock.Held, a)
	p.settle("of a held key", true, key, "a", []byte("done"), p.long)
	p.wantReceipt("Claim with Replaces of a settled key", p.try(key, b), a, []byte("done"))
	p.wantReceipt("Get after it", p.get(key), a, []byte("done"))
}

func replacesLeavesFree(p *probe) {
	key, b := p.key(), p.claimOf("b", p.long, p.long)
	b.Replaces, b.Attempt = "a", 2
	if e := p.try(key, b); e.State != lock.Free {
		p.failf("Claim with Replaces of a free key returned an entry that is %v; it must leave the key free", e.State)
	}
	p.wantFree("after a claim with Replaces", key)
	a := p.claimOf("a", p.long, p.long)
	p.claim(key, a)
	p.release("of what it was to replace", true, key, "a")
	if e := p.try(key, b); e.State != lock.Free {
		p.failf("Claim with Replaces of a released key returned an entry that is %v; it must leave the key free", e.State)
	}
	p.wantFree("after a claim with Replaces of a released key", key)
}
