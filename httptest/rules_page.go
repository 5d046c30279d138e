package latchtest

import (
	"errors"

	"github.com/httplatch/httplatch/lock"
)

func pageRules() []rule {
	return []rule{{
		"page_yields_live",
		"Page, in steps of any size, has every entry that List yields on one page at least, without its receipt, and of keys that match accepts only",
		pageYieldsLive,
	}}
}

// maxPages is more pages than any store has whose listing ends, even with foreign entries.
const maxPages = 1_000_000

// pages returns the entries of keys on all pages, by token.
func (p *probe) pages(i lock.Inspector, limit int, match func(key string) bool, keys map[string]string) map[string]lock.Entry {
	p.Helper()
	found := make(map[string]lock.Entry)
	cursor := ""
	for range maxPages {
		ctx, cancel := p.within()
		page, next, err := i.Page(ctx, cursor, limit, match)
		cancel()
		if err != nil {
			p.failf("Page from %q, limit %d: %v", cursor, limit, err)
		}
		for _, e := range page {
			if match != nil && !match(e.Key) {
				p.failf("Page has %q, which match does not accept", e.Key)
			}
			if len(e.Receipt) > 0 {
				p.failf("Page has the receipt of %q", e.Key)
			}
			if _, ours := keys[e.Token]; ours {
				found[e.Token] = e
			}
		}
		if cursor = next; cursor == "" {
			return found
		}
	}
	p.failf("Page goes on after %d pages", maxPages)
	return nil
}

func pageYieldsLive(p *probe) {
	i := p.inspector()
	ctx, cancel := p.within()
	defer cancel()
	if _, _, err := i.Page(ctx, "", 1, nil); errors.Is(err, errors.ErrUnsupported) {
		p.Skipf("the store lists in no steps")
	}
	keys, claims := p.exhibit()
	listed := p.list(i, keys)
	p.wantAll(listed, claims)
	for _, limit := range []int{0, 1000} {
		found := p.pages(i, limit, nil, keys)
		for _, c := range claims {
			e, want := found[c.Token], listed[c.Token]
			if e.Key != want.Key || e.State != want.State || e.Owner != want.Owner || e.Attempt != want.Attempt {
				p.failf("the pages of %d have %s, want %s, as in List", limit, show(e), show(want))
			}
		}
	}
	only := listed[claims[0].Token]
	if found := p.pages(i, 2, func(key string) bool { return key == only.Key }, keys); len(found) != 1 {
		p.failf("the pages of one key have %d entries, want it", len(found))
	}
}
