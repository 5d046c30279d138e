package latchtest

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/httplatch/httplatch/lock"
)

func amendRules() []rule {
	return []rule{
		{
			"amend_replaces_receipt",
			"an Amender replaces a receipt by another of any length, with any bytes, and nothing else: token, attempt, fingerprint, owner and the end of the keep stay",
			amendReplacesReceipt,
		},
		{
			"amend_compares",
			"an amend whose first receipt is not the one that is there, or whose token is not the entry's, returns false and changes nothing",
			amendCompares,
		},
		{
			"amend_twice_unchanged",
			"an amend that is sent again returns true, and changes nothing: its first answer may have been lost",
			amendTwiceUnchanged,
		},
		{
			"amend_only_settled",
			"an amend of a key that is free, Held or Abandoned returns false and changes nothing",
			amendOnlySettled,
		},
		{
			"amend_race_one_winner",
			"of many amends of one receipt at once, exactly one returns true, and its receipt is there afterwards",
			amendRaceOneWinner,
		},
	}
}

// amender returns the store as an Amender, or skips the rule.
func (p *probe) amender() lock.Amender {
	p.Helper()
	p.needsReceipts()
	if err := lock.Describe(p.store).NoAmends; err != nil {
		p.Skipf("the store replaces no receipts: %v", err)
	}
	a, is := p.store.(lock.Amender)
	if !is {
		p.failf("the Description has no NoAmends, and the store is no Amender")
	}
	return a
}

func (p *probe) amend(a lock.Amender, what string, want bool, key, token string, from, to []byte) {
	p.Helper()
	ctx, cancel := p.within()
	defer cancel()
	ok, err := a.Amend(ctx, key, token, from, to)
	p.wantOK("Amend "+what, want, ok, err)
}

// settled returns a key with the receipt of a claim.
func (p *probe) settled(receipt []byte) (string, lock.Claim) {
	p.Helper()
	key, c := p.key(), p.claimOf("a", p.long, p.long)
	c.Attempt = 3
	p.claim(key, c)
	p.settle("by the holder", true, key, "a", receipt, p.long)
	return key, c
}

func amendReplacesReceipt(p *probe) {
	a := p.amender()
	last := []byte("accepted")
	key, c := p.settled(last)
	for _, next := range [][]byte{[]byte("done"), bytes.Repeat([]byte("\x00\xff\r\n"), 300), []byte("1"), {}, bytes.Repeat([]byte("long"), 20_000)} {
		p.amend(a, fmt.Sprintf("from %d to %d bytes", len(last), len(next)), true, key, "a", last, next)
		e := p.get(key)
		p.wantReceipt("Get after Amend", e, c, next)
		p.wantLeft("Get after Amend", e, p.long/2, p.long)
		p.wantReceipt("Claim after Amend", p.try(key, p.claimOf("b", p.long, 0)), c, next)
		last = next
	}
	p.settle("sent again by the holder", true, key, "a", []byte("accepted"), p.long)
	p.wantReceipt("Get after it", p.get(key), c, last)

	brief, c := p.key(), p.claimOf("a", p.long, p.long)
	p.claim(brief, c)
	p.settle("by the holder", true, brief, "a", []byte("accepted"), p.short)
	ctx, cancel := p.within()
	defer cancel()
	if _, err := a.Amend(ctx, brief, "a", []byte("accepted"), []byte("done")); err != nil { // it may be over by now
		p.failf("Amend: %v", err)
	}
	p.waitWhile(brief, lock.Settled)
	p.wantFree("after the keep of a receipt that was amended", brief)
}

func amendCompares(p *probe) {
	a := p.amender()
	key, c := p.settled([]byte("accepted"))
	for _, other := range []string{"", "accepte", "accepted1", "ccepted", "Accepted", "accepted\x00"} {
		p.amend(a, "of another receipt", false, key, "a", []byte(other), []byte("done"))
	}
	for _, token := range []string{"b", "aa", "A", "a\x00"} {
		p.amend(a, "by another token", false, key, token, []byte("accepted"), []byte("done"))
	}
	p.wantReceipt("Get after them", p.get(key), c, []byte("accepted"))
	empty, c := p.settled(nil)
	p.amend(a, "of another receipt than the empty one", false, empty, "a", []byte("accepted"), []byte("done"))
	p.amend(a, "of the empty receipt", true, empty, "a", nil, []byte("done"))
	p.wantReceipt("Get after it", p.get(empty), c, []byte("done"))
}

func amendTwiceUnchanged(p *probe) {
	a := p.amender()
	key, c := p.settled([]byte("accepted"))
	for range 3 {
		p.amend(a, "sent again", true, key, "a", []byte("accepted"), []byte("done"))
		p.wantReceipt("Get after it", p.get(key), c, []byte("done"))
	}
	p.amend(a, "with other bytes", false, key, "a", []byte("accepted"), []byte("failed"))
	p.wantReceipt("Get after it", p.get(key), c, []byte("done"))
}

func amendOnlySettled(p *probe) {
	a := p.amender()
	key := p.key()
	p.amend(a, "of a free key", false, key, "a", nil, []byte("done"))
	p.wantFree("after it", key)
	c := p.claimOf("a", p.long, 0)
	p.claim(key, c)
	p.amend(a, "of a held key", false, key, "a", nil, []byte("done"))
	p.wantClaim("Get after it", p.get(key), lock.Held, c)
	key, c = p.key(), p.claimOf("a", p.short, p.long)
	p.lapse(key, c)
	p.amend(a, "of an abandoned key", false, key, "a", nil, []byte("done"))
	p.wantClaim("Get after it", p.get(key), lock.Abandoned, c)
}

// amenders is less than racers, because a database makes them wait for each other.
const amenders = 16

func amendRaceOneWinner(p *probe) {
	a := p.amender()
	for range races {
		key, c := p.settled([]byte("accepted"))
		ctx, cancel := p.within()
		oks, errs := make([]bool, amenders), make([]error, amenders)
		start := make(chan struct{})
		var done sync.WaitGroup
		for i := range amenders {
			done.Go(func() {
				<-start
				oks[i], errs[i] = a.Amend(ctx, key, "a", []byte("accepted"), fmt.Appendf(nil, "answer %d", i))
			})
		}
		close(start)
		done.Wait()
		cancel()
		winner := -1
		for i, ok := range oks {
			switch {
			case errs[i] != nil:
				p.failf("Amend: %v", errs[i])
			case ok && winner >= 0:
				p.failf("two of %d amends at once returned true", amenders)
			case ok:
				winner = i
			}
		}
		p.wantReceipt("Get after many amends at once", p.get(key), c, fmt.Appendf(nil, "answer %d", winner))
	}
}
