package latchtest

import (
	"time"

	"github.com/httplatch/httplatch/lock"
)

func lapseRules() []rule {
	return []rule{
		{
			"lease_expires",
			"without a linger, a key is free when its lease ends, and not before",
			leaseExpires,
		},
		{
			"linger_abandons",
			"with a linger, a key whose lease ended is Abandoned, and stays its holder's, until the linger ends too",
			lingerAbandons,
		},
		{
			"claim_never_takes_abandoned",
			"a claim that does not name the abandoned token leaves an abandoned key as it is, its own token's claim too",
			claimNeverTakesAbandoned,
		},
		{
			"own_linger",
			"whether a lease has ended, and for how long that is remembered, is judged by the linger in the entry, not by that of the caller",
			ownLinger,
		},
		{
			"late_ops_never_touch_successor",
			"renew, settle and release of a token whose lease ended do nothing to the entry of the next",
			lateOpsNeverTouchSuccessor,
		},
	}
}

func leaseExpires(p *probe) {
	key, a := p.key(), p.claimOf("a", p.short, 0)
	began := time.Now()
	p.claim(key, a)
	e := p.waitWhile(key, lock.Held)
	// The store's clock may run a little faster than this one.
	if lasted := time.Since(began); lasted < p.short*9/10-2*time.Millisecond {
		p.failf("a lease of %v was over after %v", p.short, lasted)
	}
	if e.State != lock.Free {
		p.failf("Get after the lease = %s, want a free key", show(e))
	}
	p.claim(key, p.claimOf("b", p.long, 0))
}

func lingerAbandons(p *probe) {
	key, a := p.key(), p.claimOf("a", p.short, p.long)
	p.claim(key, a)
	p.wantClaim("Get after the lease", p.waitWhile(key, lock.Held), lock.Abandoned, a)

	key, a = p.key(), p.claimOf("a", p.short, p.short)
	p.claim(key, a)
	e := p.waitWhile(key, lock.Held)
	if e.State == lock.Abandoned {
		e = p.waitWhile(key, lock.Abandoned)
	}
	if e.State != lock.Free {
		p.failf("Get after the linger = %s, want a free key", show(e))
	}
	p.claim(key, p.claimOf("b", p.long, 0))
}

func claimNeverTakesAbandoned(p *probe) {
	key, a := p.key(), p.claimOf("a", p.short, p.long)
	p.lapse(key, a)
	e := p.try(key, p.claimOf("b", p.long, 0))
	p.wantClaim("Claim of an abandoned key by another", e, lock.Abandoned, a)
	p.wantLeft("Claim of an abandoned key", e, p.long/2, p.long)
	p.wantClaim("Claim of an abandoned key by its own token", p.try(key, a), lock.Abandoned, a)
	p.wantClaim("Get after them", p.get(key), lock.Abandoned, a)
}

func ownLinger(p *probe) {
	key, a := p.key(), p.claimOf("a", p.short, 0)
	p.lapse(key, a)
	p.claim(key, p.claimOf("b", p.long, p.long))

	// A store may find out whether a lease has ended by comparing the time left of the entry
	// with its linger. It must use the linger in the entry, and not the linger of the caller.
	key, a = p.key(), p.claimOf("a", p.long, 0)
	p.claim(key, a)
	b := p.claimOf("b", p.long, 10*p.long)
	b.Replaces = "a"
	e := p.try(key, b)
	p.wantClaim("Claim of a held key with a longer linger than its lease", e, lock.Held, a)
	p.wantLeft("Claim of a held key", e, p.long/2, p.long)

	key, a = p.key(), p.claimOf("a", p.short, p.long)
	p.lapse(key, a)
	for _, linger := range []time.Duration{0, p.short, 10 * p.long} {
		e = p.try(key, p.claimOf("b", p.long, linger))
		p.wantClaim("Claim of an abandoned key with another linger", e, lock.Abandoned, a)
		p.wantLeft("Claim of an abandoned key with another linger", e, p.long/2, p.long)
	}
}

func lateOpsNeverTouchSuccessor(p *probe) {
	expired, a := p.key(), p.claimOf("a", p.short, 0)
	p.lapse(expired, a)
	b := p.claimOf("b", p.long, 0)
	p.claim(expired, b)

	released := p.key()
	p.claim(released, p.claimOf("a", p.long, 0))
	p.release("by the holder", true, released, "a")
	p.claim(released, b)

	keys := []string{expired, released}
	if !p.locksOnly() {
		taken, c := p.key(), p.claimOf("a", p.short, p.long)
		p.lapse(taken, c)
		b.Replaces = "a"
		p.claim(taken, b)
		b.Replaces = ""
		keys = append(keys, taken)
	}

	for _, key := range keys {
		p.renew("by a late holder", false, key, p.claimOf("a", p.long, p.long))
		p.settle("by a late holder", false, key, "a", []byte("late"), p.long)
		p.release("by a late holder", false, key, "a")
		p.wantClaim("Get after a late holder's calls", p.get(key), lock.Held, b)
		p.settle("by the holder", true, key, "b", []byte("done"), p.long)
		p.settle("by a late holder, over a receipt", false, key, "a", []byte("late"), p.long)
		p.wantReceipt("Get after it", p.get(key), b, []byte("done"))
	}
}
