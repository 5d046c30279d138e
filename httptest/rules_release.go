package latchtest

import "github.com/httplatch/httplatch/lock"

func releaseRules() []rule {
	return []rule{
		{
			"release_frees",
			"a release by the token that holds a key frees it at once, linger or not; a second one returns false",
			releaseFrees,
		},
		{
			"release_not_ours",
			"only the token that holds a key releases it",
			releaseNotOurs,
		},
		{
			"release_never_receipt",
			"a release never removes a receipt",
			releaseNeverReceipt,
		},
		{
			"release_after_lapse",
			"a key that is Abandoned can be released by the token that held it",
			releaseAfterLapse,
		},
		{
			"ends_by_token_alone",
			"the token alone decides what a release or a settle ends: the rest of its claim may be missing, or differ",
			endsByTokenAlone,
		},
	}
}

func releaseFrees(p *probe) {
	key := p.key()
	p.claim(key, p.claimOf("a", p.long, p.long))
	p.release("by the holder", true, key, "a")
	p.wantFree("after it", key)
	p.release("a second time", false, key, "a")
	p.claim(key, p.claimOf("b", p.long, 0))
	p.release("by the next holder", true, key, "b")
	p.claim(key, p.claimOf("a", p.long, 0))
}

func releaseNotOurs(p *probe) {
	key, a := p.key(), p.claimOf("a", p.long, 0)
	p.release("of a key that was never used", false, key, "a")
	p.claim(key, a)
	p.release("by a token that does not hold the key", false, key, "b")
	p.wantClaim("Get after it", p.get(key), lock.Held, a)

	key, a = p.key(), p.claimOf("a", p.short, p.long)
	p.lapse(key, a)
	p.release("of an abandoned key by another", false, key, "b")
	p.wantClaim("Get after it", p.get(key), lock.Abandoned, a)

	key = p.key()
	p.lapse(key, p.claimOf("a", p.short, 0))
	p.release("of a key whose lease ended", false, key, "a")
}

func releaseNeverReceipt(p *probe) {
	key, c := p.key(), p.claimOf("a", p.long, 0)
	p.claim(key, c)
	p.settle("by the holder", true, key, "a", []byte("done"), p.long)
	p.release("by the token that settled", false, key, "a")
	p.release("by another", false, key, "b")
	p.wantReceipt("Get after it", p.get(key), c, []byte("done"))
}

func releaseAfterLapse(p *probe) {
	key := p.key()
	p.lapse(key, p.claimOf("a", p.short, p.long))
	p.release("of an abandoned key by its token", true, key, "a")
	p.wantFree("after it", key)
}

func endsByTokenAlone(p *probe) {
	ctx, cancel := p.within()
	defer cancel()
	for what, end := range map[string]lock.Claim{
		"by the token": {Token: "a"},
		"by a claim that differs": {
			Token: "a", Attempt: 7, Fingerprint: []byte("another"), Owner: "another", Lease: p.short, Longest: true,
		},
	} {
		key, c := p.key(), p.claimOf("a", p.long, p.long)
		p.claim(key, c)
		ok, err := p.store.Release(ctx, key, end)
		p.wantOK("Release "+what, true, ok, err)
		p.wantFree("after it", key)

		p.claim(key, c)
		ok, err = p.store.Settle(ctx, key, end, p.receipt([]byte("done")), p.long)
		p.wantOK("Settle "+what, true, ok, err)
		p.wantReceipt("Get after it", p.get(key), c, []byte("done"))
	}
}
