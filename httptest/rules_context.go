package latchtest

import (
	"context"
	"errors"

	"github.com/httplatch/httplatch/lock"
)

func contextRules() []rule {
	return []rule{{
		"done_context_not_applied",
		"a call whose context has ended before it has no effect, and returns an error that matches ErrNotApplied",
		doneContextNotApplied,
	}}
}

func doneContextNotApplied(p *probe) {
	done, cancel := context.WithCancel(p.Context())
	cancel()
	want := func(what string, err error) {
		p.Helper()
		if !errors.Is(err, lock.ErrNotApplied) {
			p.failf("%s with a context that has ended: error %v, want one that matches ErrNotApplied", what, err)
		}
	}

	key, a := p.key(), p.claimOf("a", p.short, p.long)
	_, err := p.store.Claim(done, key, a)
	want("Claim", err)
	p.wantFree("after it", key)

	state := lock.Abandoned
	if p.locksOnly() {
		a.Lease, state = p.long, lock.Held
		p.claim(key, a)
	} else {
		p.lapse(key, a)
	}
	b := p.claimOf("b", p.long, 0)
	b.Replaces = "a"
	_, err = p.store.Claim(done, key, b)
	want("Claim with Replaces", err)
	_, err = p.store.Renew(done, key, p.claimOf("a", p.long, 0))
	want("Renew", err)
	_, err = p.store.Settle(done, key, lock.Claim{Token: "a"}, nil, p.long)
	want("Settle", err)
	_, err = p.store.Release(done, key, lock.Claim{Token: "a"})
	want("Release", err)
	_, err = p.store.Get(done, key)
	if err == nil {
		p.failf("Get with a context that has ended returns no error")
	}
	p.wantClaim("Get after them", p.get(key), state, a)
}
