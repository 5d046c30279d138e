package duty

import (
	"maps"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// Orphan is an entry without a holder. It may be in the store now, or land later.
//
// One compare-and-delete that finds nothing proves nothing: the claim may be in a
// socket buffer, in a proxy, or in a batch of events that a stalled server processes in
// its own order. So there are several. The first is sent when no send of the claim is in
// flight, or after a second. In most cases it is also the last: if all sends were answered, or if
// one had no answer and the removal finds the entry. The second follows a second later: the answer
// to the first shows that the server serves, so it has processed its backlog by then. Then the
// pauses double, so that a claim which lands late refuses other processes for about as long as it
// was late. The last two follow when the bytes of a closed connection can no longer land.
//
// The entry would end with its lease in any case, and the lease alone is correct. So the
// retry budget pays for every removal, and removals are given up if there are too many.
type Orphan struct {
	Subject

	Flight   *send.Flight
	Answered bool          // the claim was answered, and its entry exists
	Takeover bool          // the entry stands for work of unknown outcome, and is not removed
	Lease    time.Duration // the longest that its token asks for
	Linger   time.Duration // the time by which the entry outlives its lease

	Remove  func() (found bool, err error) // sends one compare-and-delete, and reports its answer
	Dropped func()                         // reports that the removal was given up for a newer one

	began  time.Time
	waited bool // a send was in flight at first, and is the only doubt
	early  bool // a removal was answered while a send was in flight
	found  bool
	landed bool          // no send of the claim could land after the last answered removal
	pause  time.Duration // before the next removal
}

const (
	firstPause = time.Second // between the first removal and the second
	maxAwaited = time.Second // for a send in flight, before the first removal
	maxOrphans = 1 << 16     // bounds the removals, and with it the tokens that are kept: twice as many
)

// token is the token of an orphan. It is kept for longer than its entry is removed: for as long as an entry of
// it can be in the store, so that this process is never refused by its own claim.
type token struct {
	fate   Fate
	until  time.Time // when it may be forgotten, once orphan is nil
	orphan *Orphan   // nil when it was removed, or given up
}

// Fate is the state of a token's claim, as far as this process knows.
type Fate uint8

// The fates of a token.
const (
	NotKnown     Fate = iota // it does not belong to an orphan
	Dead                     // its claim has no holder, and its entry may be removed
	LostTakeover             // its takeover had no answer, and the next claim of the key replaces it
)

// AddOrphan keeps the token of o, and lets the queue remove its entry, unless o is a takeover or its token is
// known already. It may give up another removal.
func (q *Queue) AddOrphan(o *Orphan) {
	wait, doubt := time.Duration(0), o.Flight.Doubt()
	if doubt.InFlight > 0 && !o.Answered {
		wait = maxAwaited
		o.waited = doubt.Unanswered+doubt.Answered == 0
	}
	o.began = time.Now()
	q.mu.Lock()
	if q.tokens[o.Token] != nil || q.stage == stopped {
		q.mu.Unlock()
		return
	}
	q.visit()
	k := &token{fate: LostTakeover, orphan: o}
	q.tokens[o.Token] = k
	if o.Takeover {
		q.mu.Unlock()
		return
	}
	d := &Duty{Subject: o.Subject, token: k, GiveUp: func() {}, Try: func(closing bool) Progress { return o.try(q.maxLag, closing) }}
	k.fate = Dead
	q.removing++
	q.start(d, removals, wait)
	dropped := q.removing > maxOrphans
	if dropped {
		q.forget(q.kinds[removals].Pop(), false) // in an outage, the one that has waited longest
		q.stats.Dropped++
	}
	q.mu.Unlock()
	if dropped {
		o.Dropped()
	}
	if doubt.InFlight > 0 {
		o.Flight.WhenLanded(func() { q.Now(d) })
	}
	q.wake()
}

// visit looks at two tokens, at a random place of the map, and forgets each, unless its removal goes on or its entry can
// still be in the store. Two visits for each new token forget faster than tokens come. Above the bound, only the
// removal counts. q.mu is held.
func (q *Queue) visit() {
	if n := len(q.tokens); n < q.most/4 {
		q.tokens, q.most = maps.Collect(maps.All(q.tokens)), n // to range over a map takes as long as at its largest
	}
	q.most = max(q.most, len(q.tokens))
	visits := 2
	for name, k := range q.tokens {
		until := k.until
		if k.orphan != nil {
			until = q.entryMayExistUntil(k.orphan).Add(k.orphan.Linger)
		}
		if removing := k.fate == Dead && k.orphan != nil; !removing && (len(q.tokens) > 2*maxOrphans || !time.Now().Before(until)) {
			delete(q.tokens, name)
		}
		if visits--; visits == 0 {
			return
		}
	}
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
	return last.Add(q.maxLag + o.Lease)
}

// FateOf returns the fate of token.
func (q *Queue) FateOf(token string) Fate {
	q.mu.Lock()
	defer q.mu.Unlock()
	if k := q.tokens[token]; k != nil {
		return k.fate
	}
	return NotKnown
}

// try sends one compare-and-delete, and returns the pause before the next. Close cannot
// wait for the network's longest delay: an entry that lands after the process has ended is
// gone after at most one lease.
func (o *Orphan) try(maxLag time.Duration, closing bool) Progress {
	before, sent := o.Flight.Doubt(), time.Now()
	switch {
	case before.InFlight > 0 && o.early:
		return Progress{Unsent: true, Again: longPause}
	case o.waited && before.InFlight+before.Unanswered+before.Answered == 0:
		return Progress{Unsent: true, Done: true} // the store has refused the send that was in flight
	}
	found, err := o.Remove()
	o.found = o.found || found
	switch {
	case err != nil:
		return Progress{}
	case before.InFlight > 0:
		o.early = true
		return Progress{Again: longPause}
	}
	possible := before.Unanswered + before.Answered
	if o.Answered {
		possible++
	}
	lag, landedBefore := maxLag-sent.Sub(before.Last), o.landed
	o.landed = lag <= 0
	if closing || before.Unanswered == 0 || o.found && possible == 1 || landedBefore {
		return Progress{Done: true}
	}
	o.pause = min(max(2*o.pause, firstPause), max(lag, firstPause))
	return Progress{Again: o.pause}
}
