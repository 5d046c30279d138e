package latchtest

import (
	"errors"
	"time"

	"github.com/httplatch/httplatch/lock"
)

func locksOnlyRules() []rule {
	return []rule{{
		"locks_only_refuses",
		"a store whose Description has NoReceipts refuses a receipt, a Linger and a Replaces with an error that matches errors.ErrUnsupported and ErrNotApplied, as it says, and keeps cool-downs",
		locksOnlyRefuses,
	}}
}

func locksOnlyRefuses(p *probe) {
	if !p.locksOnly() {
		p.Skipf("the store keeps receipts")
	}
	want := func(what string, err error) {
		p.Helper()
		if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, lock.ErrNotApplied) {
			p.failf("%s: error %v, want one that matches errors.ErrUnsupported and ErrNotApplied", what, err)
		}
	}
	want("NoReceipts", p.noReceipts())
	ctx, cancel := p.within()
	defer cancel()
	key := p.key()
	_, err := p.store.Claim(ctx, key, p.claimOf("a", p.long, time.Second))
	want("Claim with a Linger", err)
	b := p.claimOf("b", p.long, 0)
	b.Replaces = "a"
	_, err = p.store.Claim(ctx, key, b)
	want("Claim with Replaces", err)
	p.wantFree("after them", key)

	a := p.claimOf("a", p.long, 0)
	p.claim(key, a)
	_, err = p.store.Renew(ctx, key, p.claimOf("a", p.long, time.Second))
	want("Renew with a Linger", err)
	_, err = p.store.Settle(ctx, key, lock.Claim{Token: "a"}, []byte("done"), p.long)
	want("Settle with a receipt", err)
	p.wantClaim("Get after them", p.get(key), lock.Held, a)
	p.settle("without a receipt", true, key, "a", nil, p.long)
	p.wantReceipt("Claim of a cool-down", p.try(key, p.claimOf("b", p.long, 0)), a, nil)
}
