package duty

import (
	"slices"
	"time"
)

// maxOrphans bounds the removals, and with it the tokens that are kept: twice as many.
const maxOrphans = 1 << 16

// tokens are the tokens of orphans. A token is kept for longer than its entry is
// removed: for as long as an entry of it can be in the store, so that this process is never
// refused by its own claim.
type tokens struct {
	known    map[string]*token
	removing int
	sweepAt  int // the number of tokens at which those are forgotten whose time is over
}

type token struct {
	name   string
	fate   Fate
	until  time.Time // when it may be forgotten; of an orphan that is not removed, as of the last sweep
	orphan *Orphan   // nil when it was removed, or given up
	duty   *Duty     // removes the entry; nil like orphan, and for a takeover
}

// Fate is the state of a token's claim, as far as this process knows.
type Fate uint8

const (
	// NotKnown says that the token does not belong to an orphan.
	NotKnown Fate = iota
	// Dead says that the claim has no holder, and that its entry may be removed.
	Dead
	// LostTakeover says that a takeover had no answer, and that the next claim of its key
	// adopts it.
	LostTakeover
)

// keep keeps the token of o, and starts its removal, unless o is a takeover or its token is known. It may
// give up another removal. q.mu is held.
func (q *Queue) keep(o *Orphan, wait time.Duration) (started *Duty, dropped bool) {
	switch k := q.tokens.known[o.Token]; {
	case q.stage == stopped:
		return nil, false
	case k != nil:
		if k.fate == LostTakeover { // the adopting claim may have renewed it
			k.orphan = o
		}
		return nil, false
	}
	q.sweep()
	k := &token{name: o.Token, fate: Dead, orphan: o}
	q.tokens.known[k.name] = k
	if o.Takeover {
		k.fate = LostTakeover
		return nil, false
	}
	k.duty = &Duty{Subject: o.Subject, token: k, Try: func(closing bool) Progress {
		p := o.try(q.maxLag, closing)
		if p.Done {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.end(k, 0)
		}
		return p
	}}
	q.tokens.removing++
	q.start(k.duty, removals, wait)
	if q.tokens.removing <= maxOrphans {
		return k.duty, false
	}
	q.giveUp(q.kinds[removals].Pop()) // in an outage, the one that has waited longest
	q.dropped.Add(1)
	return k.duty, true
}

// entryMayExistUntil returns the latest time at which the entry of o can still exist, without its linger. q.mu is
// held.
func (q *Queue) entryMayExistUntil(o *Orphan) time.Time {
	last := o.began
	switch doubt := o.Flight.Doubt(); {
	case doubt.InFlight > 0:
		last = time.Now()
	case doubt.Last.After(last):
		last = doubt.Last
	}
	return last.Add(q.maxLag + q.longest)
}

// end notes the end of the removal of k, whose token is kept for as long as its entry can exist with
// linger. q.mu is held.
func (q *Queue) end(k *token, linger time.Duration) {
	k.until = q.entryMayExistUntil(k.orphan).Add(linger)
	k.orphan, k.duty = nil, nil
	q.tokens.removing--
}

// giveUp gives up a removal that is in no queue and does not run. q.mu is held.
func (q *Queue) giveUp(d *Duty) {
	q.forget(d)
	q.end(d.token, d.token.orphan.Linger)
}

// sweep forgets the tokens whose entries can no longer be in the store, whenever their number has
// doubled. If too many are left, it forgets those that have the least time. q.mu is held.
func (q *Queue) sweep() {
	t := &q.tokens
	if t.known == nil {
		t.known = make(map[string]*token)
	}
	if len(t.known) < max(t.sweepAt, 1024) {
		return
	}
	now := time.Now()
	left := make([]*token, 0, len(t.known))
	for _, k := range t.known {
		if k.orphan != nil {
			k.until = q.entryMayExistUntil(k.orphan).Add(k.orphan.Linger)
		}
		if now.Before(k.until) || !q.forgetToken(k) {
			left = append(left, k)
		}
	}
	if len(left) >= 2*maxOrphans {
		slices.SortFunc(left, func(a, b *token) int { return a.until.Compare(b.until) })
		for _, k := range left[:len(left)/2] {
			q.forgetToken(k)
		}
	}
	t.sweepAt = min(2*len(t.known), 2*maxOrphans)
}

// forgetToken forgets k, unless its removal runs at the moment. q.mu is held.
func (q *Queue) forgetToken(k *token) bool {
	if k.duty != nil {
		if k.duty.Place <= 0 {
			return false
		}
		k.duty.kind.Drop(k.duty)
		q.giveUp(k.duty)
	}
	delete(q.tokens.known, k.name)
	return true
}

// FateOf returns the fate of token.
func (q *Queue) FateOf(token string) Fate {
	q.mu.Lock()
	defer q.mu.Unlock()
	if k := q.tokens.known[token]; k != nil {
		return k.fate
	}
	return NotKnown
}

// Adopted forgets the token of a takeover that has a holder now.
func (q *Queue) Adopted(token string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.tokens.known, token)
}
