package latchtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/httplatch/httplatch/lock"
)

func setRules() []rule {
	return []rule{
		{
			"set_takes_all",
			"a SetClaimer takes all keys of a set, each for its own token, and every other method finds them as if they were claimed one by one",
			setTakesAll,
		},
		{
			"set_takes_none",
			"a claim of a set with an entry of another token in the way, Held, Abandoned or Settled, changes no key, and returns that entry with its Key",
			setTakesNone,
		},
		{
			"set_again_ours",
			"a claim of a set that is sent again is granted again: its first answer may have been lost",
			setAgainOurs,
		},
		{
			"set_again_after_end",
			"a claim of a set that is sent again never takes the place of an own receipt",
			setAgainAfterEnd,
		},
		{
			"set_race_one_winner",
			"of many claims at once of sets that overlap in one key, exactly one is granted, and no other holds any of its keys",
			setRaceOneWinner,
		},
	}
}

// sets returns the store as a SetClaimer, or skips the rule.
func (p *probe) sets() lock.SetClaimer {
	p.Helper()
	s, is := p.store.(lock.SetClaimer)
	if !is {
		p.Skipf("the store claims no sets at once")
	}
	keys := []string{p.key(), p.key()}
	slices.Sort(keys)
	ctx, cancel := p.within()
	defer cancel()
	if _, err := s.ClaimSet(ctx, keys, p.claimsOf("a", len(keys))); errors.Is(err, errors.ErrUnsupported) {
		p.Skipf("the store claims no sets at once: %v", err)
	}
	return s
}

// set returns n keys that were never used, in order.
func (p *probe) set(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = p.key()
	}
	slices.Sort(keys)
	return keys
}

// claimsOf returns the claims of a set of n keys, with tokens that begin with name.
func (p *probe) claimsOf(name string, n int) []lock.Claim {
	claims := make([]lock.Claim, n)
	for i := range claims {
		claims[i] = lock.Claim{Token: fmt.Sprintf("%s%d", name, i), Attempt: 1, Owner: "owner of " + name, Lease: p.long}
	}
	return claims
}

func (p *probe) claimSet(s lock.SetClaimer, keys []string, claims []lock.Claim) lock.Entry {
	p.Helper()
	ctx, cancel := p.within()
	defer cancel()
	e, err := s.ClaimSet(ctx, keys, claims)
	if err != nil {
		p.failf("ClaimSet: %v", err)
	}
	return e
}

func (p *probe) wantSet(what string, e lock.Entry, keys []string, claims []lock.Claim) {
	p.Helper()
	if e.State != lock.Free || e.Token != "" {
		p.failf("%s: %v of %q is in the way", what, e.State, e.Token)
	}
	for i, key := range keys {
		p.wantClaim("Get after "+what, p.get(key), lock.Held, claims[i])
	}
}

func setTakesAll(p *probe) {
	s := p.sets()
	for _, n := range []int{1, 2, 5, 64} {
		keys, claims := p.set(n), p.claimsOf("a", n)
		p.wantSet("ClaimSet of free keys", p.claimSet(s, keys, claims), keys, claims)
		for i, key := range keys[:min(n, 5)] {
			p.wantLeft("Get after ClaimSet", p.get(key), p.long/2, p.long)
			p.renew("of a key of the set", true, key, claims[i])
			p.wantClaim("Claim by another", p.try(key, p.claimOf("b", p.long, 0)), lock.Held, claims[i])
			p.release("by another token of the set", false, key, "a9")
			p.release("by its token", true, key, claims[i].Token)
			p.wantFree("after it", key)
		}
	}
	keys, claims := p.set(3), p.claimsOf("a", 3)
	for i := range claims {
		claims[i].Lease = p.short
	}
	if e := p.claimSet(s, keys, claims); e.State != lock.Free {
		p.failf("ClaimSet of free keys: %v is in the way", e.State)
	}
	for _, key := range keys {
		p.waitWhile(key, lock.Held)
	}
	next := p.claimsOf("b", 3)
	p.wantSet("ClaimSet of keys whose leases are over", p.claimSet(s, keys, next), keys, next)
}

func setTakesNone(p *probe) {
	s := p.sets()
	inTheWay := map[lock.State]func(key string){
		lock.Held: func(key string) { p.claim(key, p.claimOf("b", p.long, 0)) },
		lock.Abandoned: func(key string) {
			p.lapse(key, p.claimOf("b", p.short, p.long))
		},
		lock.Settled: func(key string) {
			p.claim(key, p.claimOf("b", p.long, 0))
			p.settle("by its holder", true, key, "b", []byte("receipt"), p.long)
		},
	}
	for _, state := range []lock.State{lock.Held, lock.Abandoned, lock.Settled} {
		if p.locksOnly() && state != lock.Held {
			continue
		}
		for at := range 3 {
			keys, claims := p.set(3), p.claimsOf("a", 3)
			inTheWay[state](keys[at])
			e := p.claimSet(s, keys, claims)
			if e.Key != keys[at] || e.State != state || e.Token != "b" {
				p.failf("ClaimSet with %v at %d of 3 in the way returned %v of %q under %q", state, at, e.State, e.Token, e.Key)
			}
			for i, key := range keys {
				if i != at {
					p.wantFree("after a ClaimSet that was refused", key)
				}
			}
		}
	}
}

func setAgainOurs(p *probe) {
	s := p.sets()
	keys, claims := p.set(3), p.claimsOf("a", 3)
	for range 3 {
		p.wantSet("ClaimSet sent again", p.claimSet(s, keys, claims), keys, claims)
	}
	// The tokens belong to their keys, and "a1" does not hold the key of "a0".
	e := p.claimSet(s, keys, []lock.Claim{claims[1], claims[0], claims[2]})
	if e.State != lock.Held || e.Key != keys[0] && e.Key != keys[1] {
		p.failf("ClaimSet with the tokens of other keys returned %v under %q", e.State, e.Key)
	}
	for i, key := range keys {
		p.release("by its token", true, key, claims[i].Token)
	}
	p.wantSet("ClaimSet after the release", p.claimSet(s, keys, claims), keys, claims)
}

func setAgainAfterEnd(p *probe) {
	s := p.sets()
	keys, claims := p.set(3), p.claimsOf("a", 3)
	p.wantSet("ClaimSet", p.claimSet(s, keys, claims), keys, claims)
	p.settle("by the holder", true, keys[1], claims[1].Token, p.receipt([]byte("receipt")), p.long)
	p.release("by the holder", true, keys[0], claims[0].Token)
	if e := p.claimSet(s, keys, claims); e.State != lock.Settled || e.Key != keys[1] {
		p.failf("ClaimSet over an own receipt returned %v under %q", e.State, e.Key)
	}
	p.wantFree("after it", keys[0])
}

// claimers is less than racers, because a database makes them wait for each other.
const claimers = 16

func setRaceOneWinner(p *probe) {
	s := p.sets()
	for range races {
		shared := p.key()
		keys, claims := make([][]string, claimers), make([][]lock.Claim, claimers)
		for i := range claimers {
			keys[i] = append(p.set(2), shared)
			slices.Sort(keys[i])
			claims[i] = p.claimsOf(fmt.Sprintf("set%d.", i), 3)
		}
		ctx, cancel := p.within()
		entries, errs := make([]lock.Entry, claimers), make([]error, claimers)
		start := make(chan struct{})
		var done sync.WaitGroup
		for i := range claimers {
			done.Go(func() {
				<-start
				entries[i], errs[i] = s.ClaimSet(ctx, keys[i], claims[i])
			})
		}
		close(start)
		done.Wait()
		cancel()
		winners := 0
		for i, e := range entries {
			switch {
			case errs[i] != nil:
				p.failf("ClaimSet: %v", errs[i])
			case e.State == lock.Free:
				winners++
				p.wantSet("ClaimSet of many at once", e, keys[i], claims[i])
			default:
				for _, key := range keys[i] {
					if key != shared {
						p.wantFree("after a ClaimSet that was refused", key)
					}
				}
			}
		}
		if winners != 1 {
			p.failf("%d of %d sets that overlap were granted", winners, claimers)
		}
	}
}
