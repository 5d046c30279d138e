package latchtest

import (
	"time"

	"github.com/httplatch/httplatch/lock"
)

func handOverRules() []rule {
	return []rule{
		{
			"replaces_held_hands_over",
			"a claim with ReplacesHeld takes a held key if Replaces names its token, for its own lease from then on, also if that is shorter; the entry is the new claim's in all parts, and the old token has nothing left",
			replacesHeldHandsOver,
		},
		{
			"replaces_held_needs_token",
			"a claim with ReplacesHeld whose Replaces names another token than a held key's leaves it as it is, and so does one whose Replaces is empty",
			replacesHeldNeedsToken,
		},
		{
			"replaces_held_leaves_the_rest",
			"ReplacesHeld takes an abandoned key as Replaces alone does, and never a receipt or a free key: a hand-over that comes late must not make an entry that no caller knows of",
			replacesHeldLeavesTheRest,
		},
		{
			"replaces_held_gives_back",
			"a claim with ReplacesHeld, a short lease and a linger leaves an abandoned entry with its own attempt and fingerprint: a takeover whose work was refused is given back, and the next caller takes over",
			replacesHeldGivesBack,
		},
		{
			"hand_over_race_one_winner",
			"of many claims with ReplacesHeld that name one token at once, exactly one is granted, and all return the winner: a ticket that is delivered twice has one worker",
			handOverRaceOneWinner,
		},
	}
}

// handedTo returns the claim that takes a key from the holder of token.
func (p *probe) handedTo(by, token string) lock.Claim {
	c := p.claimOf(by, p.long, 0)
	c.Replaces, c.ReplacesHeld = token, true
	return c
}

func replacesHeldHandsOver(p *probe) {
	key, a := p.key(), p.claimOf("a", p.long, p.long)
	p.claim(key, a)
	ticket := p.handedTo("ticket", "a")
	ticket.Lease, ticket.Attempt, ticket.Fingerprint, ticket.Owner = p.long/2, 2, nil, ""
	e := p.claim(key, ticket)
	p.wantLeft("Claim with ReplacesHeld", e, p.long/3, p.long/2)
	e = p.try(key, ticket)
	p.wantClaim("the same claim sent again", e, lock.Held, ticket)
	p.wantLeft("Get after Claim with ReplacesHeld", p.get(key), p.long/4, p.long/2)
	p.wantClaim("the claim of the holder before, sent again", p.try(key, a), lock.Held, ticket)
	p.renew("by the holder before", false, key, a)
	p.settle("by the holder before", false, key, "a", []byte("done"), p.long)
	p.release("by the holder before", false, key, "a")
	p.wantClaim("Get after them", p.get(key), lock.Held, ticket)

	worker := p.handedTo("worker", "ticket")
	p.claim(key, worker)
	p.renew("by the last holder", true, key, worker)
	p.release("by the last holder", true, key, "worker")
	p.wantFree("after it", key)

	p.claim(key, a)
	ticket.Lease = p.short
	p.lapse(key, ticket)
	p.wantFree("after the lease of the claim that took over, in place of a longer one with a linger", key)
}

func replacesHeldNeedsToken(p *probe) {
	key, a := p.key(), p.claimOf("token", p.long, 0)
	p.claim(key, a)
	for _, other := range []string{"toke", "token1", "TOKEN", "token\x00", "b", ""} {
		p.wantClaim("Claim with ReplacesHeld of another token", p.try(key, p.handedTo("b", other)), lock.Held, a)
	}
	p.wantClaim("Get after it", p.get(key), lock.Held, a)
	b := p.handedTo("b", "token")
	p.claim(key, b)
	p.wantClaim("another claim that names the token before", p.try(key, p.handedTo("c", "token")), lock.Held, b)
	p.wantClaim("Get after both", p.get(key), lock.Held, b)
}

func replacesHeldLeavesTheRest(p *probe) {
	key, b := p.key(), p.handedTo("b", "a")
	if e := p.try(key, b); e.State != lock.Free {
		p.failf("Claim with ReplacesHeld of a free key returned an entry that is %v; it must leave the key free", e.State)
	}
	p.wantFree("after it", key)

	a := p.claimOf("a", p.long, 0)
	p.claim(key, a)
	p.settle("by the holder", true, key, "a", []byte("done"), p.long)
	p.wantReceipt("Claim with ReplacesHeld of a receipt", p.try(key, b), a, []byte("done"))
	p.wantReceipt("Get after it", p.get(key), a, []byte("done"))

	key, a = p.key(), p.claimOf("a", p.short, p.long)
	p.lapse(key, a)
	p.claim(key, b)
}

func replacesHeldGivesBack(p *probe) {
	p.needsReceipts()
	key := p.key()
	takeover := p.claimOf("takeover", p.long, p.long)
	takeover.Attempt = 2
	p.claim(key, takeover)
	back := p.handedTo("back", "takeover")
	back.Lease, back.Linger, back.Attempt = time.Millisecond, p.long, 1
	p.try(key, back)
	p.wantClaim("Get after a takeover was given back", p.waitWhile(key, lock.Held), lock.Abandoned, back)
	p.wantClaim("the claim that has given it back, sent again", p.try(key, back), lock.Abandoned, back)
	next := p.handedTo("next", "back")
	next.ReplacesHeld, next.Attempt = false, 2
	p.claim(key, next)
	p.wantClaim("the claim that has given it back, late", p.try(key, back), lock.Held, next)
}

func handOverRaceOneWinner(p *probe) {
	for range races {
		key := p.key()
		p.claim(key, p.claimOf("holder", p.long, 0))
		p.race(key, lock.Claim{Replaces: "holder", ReplacesHeld: true})
	}
}
