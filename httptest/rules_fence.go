package latchtest

import (
	"errors"

	"github.com/httplatch/httplatch/lock"
)

func fenceRules() []rule {
	return []rule{
		{
			"fences_grow",
			"each grant of a key to a Fenced claim has a higher fence than all before it, across release, expiry, takeover and hand-over",
			fencesGrow,
		},
		{
			"fence_of_grant_is_stable",
			"a Fenced claim that is sent again returns the fence of its grant; one that is not Fenced has none",
			fenceOfGrantIsStable,
		},
		{
			"plain_claim_after_fenced_release",
			"a key that a Fenced claim released is free to claims that are not Fenced, and the other way round",
			plainClaimAfterFencedRelease,
		},
		{
			"fences_grow_past_unfenced_holders",
			"a holder without a fence, whether it releases, settles or takes over, does not make the store forget the last fence of the key",
			fencesGrowPastUnfencedHolders,
		},
	}
}

// fenced returns a Fenced claim, or skips the rule if the store has no fences.
func (p *probe) fenced(token string, c lock.Claim) lock.Claim {
	p.Helper()
	ctx, cancel := p.within()
	defer cancel()
	key := p.key()
	e, err := p.store.Claim(ctx, key, lock.Claim{Token: token, Lease: p.long, Fenced: true})
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		p.wantFree("after a Fenced claim that is not supported", key)
		p.Skipf("the store has no fences: it answers a Fenced claim with errors.ErrUnsupported")
	case err != nil:
		p.failf("Claim with Fenced: %v", err)
	case e.Fence <= 0:
		p.failf("Claim with Fenced returns the fence %d", e.Fence)
	}
	p.release("by the holder", true, key, token)
	c.Token, c.Fenced = token, true
	return c
}

func fencesGrow(p *probe) {
	key, last := p.key(), int64(0)
	claim := func(after string, c lock.Claim) {
		p.Helper()
		e := p.claim(key, c)
		if e.Fence <= last {
			p.failf("the fence after %s is %d, and was %d before", after, e.Fence, last)
		}
		last = e.Fence
		if got := p.get(key).Fence; got != e.Fence && got != 0 {
			p.failf("Get returns the fence %d, Claim returned %d", got, e.Fence)
		}
	}
	a := p.fenced("a", p.claimOf("a", p.long, 0))
	for range 100 {
		claim("a release", a)
		p.release("by the holder", true, key, "a")
	}
	a.Lease = p.short
	claim("a release", a)
	p.waitWhile(key, lock.Held)
	a.Linger = p.long
	claim("an expiry", a)
	p.waitWhile(key, lock.Held)
	b := p.fenced("b", p.claimOf("b", p.long, 0))
	b.Replaces = "a"
	claim("an abandonment", b)
	d := p.fenced("d", p.handedTo("d", "b"))
	claim("a hand-over", d)
	b.Replaces, b.ReplacesHeld = "d", true
	claim("a resume", b)
	b.Replaces, b.ReplacesHeld = "", false
	p.settle("by the holder", true, key, "b", nil, p.short)
	p.waitWhile(key, lock.Settled)
	claim("a receipt", b)
	p.release("by the holder", true, key, "b")
	claim("a release", b)
}

func fenceOfGrantIsStable(p *probe) {
	key := p.key()
	c := p.fenced("a", p.claimOf("a", p.long, 0))
	first := p.claim(key, c)
	if again := p.claim(key, c); again.Fence != first.Fence {
		p.failf("the same claim returned the fence %d, then %d", first.Fence, again.Fence)
	}
	if plain := p.claim(p.key(), p.claimOf("a", p.long, 0)); plain.Fence != 0 {
		p.failf("a claim without Fenced returned the fence %d", plain.Fence)
	}
}

func plainClaimAfterFencedRelease(p *probe) {
	key, plain := p.key(), p.claimOf("plain", p.long, 0)
	c := p.fenced("fenced", p.claimOf("fenced", p.long, 0))
	first := p.claim(key, c)
	p.release("by the holder", true, key, "fenced")
	p.wantFree("after a release of a Fenced claim", key)
	p.claim(key, plain)
	p.release("by the holder", true, key, "plain")
	if again := p.claim(key, c); again.Fence <= first.Fence {
		p.failf("the fence is %d, and was %d before a claim that was not Fenced", again.Fence, first.Fence)
	}
}

func fencesGrowPastUnfencedHolders(p *probe) {
	key, last := p.key(), int64(0)
	c := p.fenced("fenced", p.claimOf("fenced", p.long, 0))
	grow := func(after string) {
		p.Helper()
		e := p.claim(key, c)
		if e.Fence <= last {
			p.failf("the fence after an unfenced holder that %s is %d, and was %d before", after, e.Fence, last)
		}
		last = e.Fence
	}
	grow("was not there")
	p.release("by the holder", true, key, "fenced")
	plain := p.claimOf("plain", p.long, p.long)
	for range 2 {
		p.claim(key, plain)
		p.renew("by the holder", true, key, plain)
		p.release("by the holder", true, key, "plain")
	}
	grow("released")
	p.release("by the holder", true, key, "fenced")
	p.claim(key, plain)
	p.settle("by the holder", true, key, "plain", nil, p.short)
	p.waitWhile(key, lock.Settled)
	c.Lease, c.Linger = p.short, p.long
	grow("settled")
	p.waitWhile(key, lock.Held)
	plain.Replaces = "fenced"
	p.claim(key, plain)
	p.release("by the holder", true, key, "plain")
	grow("took over")
	p.claim(key, p.handedTo("plain", "fenced"))
	p.release("by the holder", true, key, "plain")
	grow("was handed the key")
}
