package latchtest

import (
	"errors"

	"github.com/httplatch/httplatch/lock"
)

func inspectRules() []rule {
	return []rule{
		{
			"list_yields_live",
			"List yields every entry that is Held, Abandoned or Settled as Get reports it, and no other",
			listYieldsLive,
		},
		{
			"forget_compares_token",
			"Forget removes the entry of any state if it bears the token; its key is the one that List yields",
			forgetComparesToken,
		},
	}
}

func (p *probe) inspector() lock.Inspector {
	p.Helper()
	i, ok := p.store.(lock.Inspector)
	if !ok {
		p.Skipf("the store is no lock.Inspector")
	}
	ctx, cancel := p.within()
	defer cancel()
	for _, err := range i.List(ctx) {
		if errors.Is(err, errors.ErrUnsupported) {
			p.Skipf("the store lists nothing: %v", err)
		}
		break
	}
	return i
}

// exhibit makes an entry of each state. It returns the keys of the entries by token, and their
// claims in the order held, abandoned, settled.
func (p *probe) exhibit() (keys map[string]string, claims []lock.Claim) {
	p.Helper()
	unique := p.key()
	keys = make(map[string]string)
	for _, name := range []string{"held", "abandoned", "settled"} {
		c := p.claimOf(name+unique, p.long, 0)
		if name == "abandoned" && !p.locksOnly() {
			c.Lease, c.Linger = p.short, p.long
		}
		keys[c.Token] = p.key()
		claims = append(claims, c)
		p.claim(keys[c.Token], c)
	}
	if !p.locksOnly() {
		p.waitWhile(keys[claims[1].Token], lock.Held)
	}
	p.settle("by the holder", true, keys[claims[2].Token], claims[2].Token, []byte("done"), p.long)
	return keys, claims
}

// list returns the entries of keys in List, by token. The store may have other entries,
// too.
func (p *probe) list(i lock.Inspector, keys map[string]string) map[string]lock.Entry {
	p.Helper()
	ctx, cancel := p.within()
	defer cancel()
	found := make(map[string]lock.Entry)
	for e, err := range i.List(ctx) {
		if err != nil {
			p.failf("List: %v", err)
		}
		if e.State == lock.Free {
			p.failf("List yields a free key: %q", e.Key)
		}
		if _, ours := keys[e.Token]; ours {
			found[e.Token] = e
		}
	}
	return found
}

func (p *probe) wantAll(found map[string]lock.Entry, claims []lock.Claim) {
	p.Helper()
	for _, c := range claims {
		if _, ok := found[c.Token]; !ok {
			p.failf("List does not yield the entry with the token %q", c.Token)
		}
	}
}

func listYieldsLive(p *probe) {
	i := p.inspector()
	keys, claims := p.exhibit()
	gone := p.claimOf("gone"+p.key(), p.long, 0)
	keys[gone.Token] = p.key()
	p.claim(keys[gone.Token], gone)
	p.release("by the holder", true, keys[gone.Token], gone.Token)

	found := p.list(i, keys)
	p.wantAll(found, claims)
	p.wantClaim("List of a held key", found[claims[0].Token], lock.Held, claims[0])
	if !p.locksOnly() {
		p.wantClaim("List of an abandoned key", found[claims[1].Token], lock.Abandoned, claims[1])
	}
	p.wantReceipt("List of a settled key", found[claims[2].Token], claims[2], []byte("done"))
	if e, ok := found[gone.Token]; ok {
		p.failf("List yields %s, which was released", show(e))
	}
	for _, e := range found {
		p.wantLeft("List", e, p.long/2, p.long)
	}
	ctx, cancel := p.within()
	defer cancel()
	for _, err := range i.List(ctx) {
		if err != nil {
			p.failf("List: %v", err)
		}
		break // List must not yield again, and must not leave the store locked
	}
	p.claim(p.key(), p.claimOf("after", p.long, 0))
}

func forgetComparesToken(p *probe) {
	i := p.inspector()
	ctx, cancel := p.within()
	defer cancel()
	keys, claims := p.exhibit()
	found := p.list(i, keys)
	p.wantAll(found, claims)
	for _, c := range claims {
		e := found[c.Token]
		for _, other := range []string{c.Token + "0", c.Token[:len(c.Token)-1], "b"} {
			ok, err := i.Forget(ctx, e.Key, other)
			p.wantOK("Forget of an entry that is "+e.State.String()+" with another token", false, ok, err)
		}
		if got := p.get(keys[c.Token]); got.State != e.State {
			p.failf("Get after it = %s, want it %v as before", show(got), e.State)
		}
		ok, err := i.Forget(ctx, e.Key, c.Token)
		p.wantOK("Forget of an entry that is "+e.State.String(), true, ok, err)
		p.wantFree("after it", keys[c.Token])
		ok, err = i.Forget(ctx, e.Key, c.Token)
		p.wantOK("Forget of an entry that is gone", false, ok, err)
		p.claim(keys[c.Token], p.claimOf("next", p.long, 0))
	}
	// Attempts to remove missing entries must not have touched the rest.
	if len(p.list(i, keys)) != 0 {
		p.failf("List yields entries that were forgotten")
	}
}
