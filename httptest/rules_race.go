package latchtest

import (
	"fmt"
	"sync"

	"github.com/httplatch/httplatch/lock"
)

func raceRules() []rule {
	return []rule{
		{
			"one_winner",
			"of many claims of one free key at once, exactly one is granted, and all return the winner",
			oneWinner,
		},
		{
			"takeover_race_one_winner",
			"of many claims that replace one abandoned token at once, exactly one is granted, and all return the winner",
			takeoverRaceOneWinner,
		},
	}
}

const (
	racers = 64
	races  = 8
)

func oneWinner(p *probe) {
	for range races {
		p.race(p.key(), lock.Claim{})
	}
}

func takeoverRaceOneWinner(p *probe) {
	keys := make([]string, races)
	for i := range keys {
		keys[i] = p.key()
		p.claim(keys[i], p.claimOf("lost", p.short, p.long))
	}
	for _, key := range keys {
		p.waitWhile(key, lock.Held)
		p.race(key, lock.Claim{Replaces: "lost"})
	}
}

// race lets many tokens claim key at the same time, with Replaces and ReplacesHeld of like.
func (p *probe) race(key string, like lock.Claim) {
	p.Helper()
	if like.Replaces != "" {
		p.needsReceipts()
	}
	ctx, cancel := p.within()
	defer cancel()
	entries, errs := make([]lock.Entry, racers), make([]error, racers)
	start := make(chan struct{})
	var done sync.WaitGroup
	for i := range racers {
		c := p.claimOf(fmt.Sprintf("racer %d", i), p.long, 0)
		c.Replaces, c.ReplacesHeld = like.Replaces, like.ReplacesHeld
		done.Go(func() {
			<-start
			entries[i], errs[i] = p.store.Claim(ctx, key, c)
		})
	}
	close(start)
	done.Wait()

	winners := 0
	for i, e := range entries {
		if errs[i] != nil {
			p.failf("one of %d claims at once: %v", racers, errs[i])
		}
		if e.State == lock.Held && e.Token == fmt.Sprintf("racer %d", i) {
			winners++
		}
	}
	if winners != 1 {
		p.failf("%d of %d claims at once were granted", winners, racers)
	}
	for _, e := range entries {
		if e.State != lock.Held || e.Token != entries[0].Token {
			p.failf("claims at once returned %s and %s, want the same winner", show(entries[0]), show(e))
		}
	}
	if e := p.get(key); e.Token != entries[0].Token {
		p.failf("Get after %d claims at once = %s, want the token %q that they returned", racers, show(e), entries[0].Token)
	}
}
