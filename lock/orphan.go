package lock

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock/event"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// orphan is a claim whose entry, if there is one now or later, is held by no caller.
//
// One compare-and-delete that finds nothing proves nothing: the claim may be in a
// socket buffer, in a proxy, or in the same batch of events that a stalled server
// works off in an order of its own. So there are several. The first is sent when
// no send of the claim is still in flight, or a second later. If only one of them had no answer, and
// this finds the entry, or if all were answered, it is the last, as it ordinarily is.
// The second follows a second later: the answer to the first has shown that the server
// serves, so that it has worked off what it had by then. Then the pauses double, so
// that a claim which lands late refuses other processes for about as long as it was
// late; and the last two, likewise, follow when the bytes of a closed connection can
// land no more.
//
// That improves on the lease, with which the entry would end by itself, and correct
// is what the lease does. So all of it is paid from the retry budget, and given up
// when there is too much of it.
type orphan struct {
	locker   *Locker
	ctx      context.Context //nolint:containedctx // values for observers and loggers; never canceled
	key      string
	token    string
	owner    string // as claimed
	flight   *send.Flight
	answered bool  // it was, and its entry is there
	takeover bool  // it stands for work of unknown outcome, and is not removed
	event    Event // for observers; nothing of the lease, which may be on its next claim by then
	began    time.Time

	waited bool // something of it was in flight when it was added, and nothing else is in doubt
	early  bool // a removal was answered while something was in flight
	found  bool
	landed bool          // the last answered removal was sent when no send of the claim could still land
	pause  time.Duration // before it
}

const (
	// firstPause is how long after the first removal the second is sent.
	firstPause = time.Second

	// maxAwaited is for how long a send in flight keeps the first removal waiting.
	maxAwaited = time.Second
)

func (e *Lease) orphan() *orphan {
	return &orphan{
		locker:   e.locker,
		ctx:      context.WithoutCancel(e.parent),
		key:      e.key,
		token:    e.claim.token,
		owner:    e.claimant(),
		flight:   e.claim.call.Flight(),
		answered: e.claim.orphaned,
		takeover: e.claim.takeover,
		event:    e.event(event.Reaped, 0, nil),
		began:    time.Now(),
	}
}

// endures is when an entry of it can be in the store no longer, as far as is known.
func (o *orphan) endures(longest time.Duration) time.Time {
	last := o.began
	switch doubt := o.flight.Doubt(); {
	case doubt.InFlight > 0:
		last = time.Now()
	case doubt.Last.After(last):
		last = doubt.Last
	}
	return last.Add(o.locker.core.maxLag + longest)
}

// remove sends one compare-and-delete, and says what is to follow. Close cannot wait for the network's longest delay, and what lands after the
// process has ended is gone after a lease at the latest.
func (o *orphan) remove(closing bool) progress {
	l := o.locker
	before, sent := o.flight.Doubt(), time.Now()
	switch {
	case before.InFlight > 0 && o.early:
		return progress{unsent: true, again: longPause}
	case o.waited && before.InFlight+before.Lost+before.Answered == 0:
		return progress{unsent: true, done: true} // the store refused, in the end, what was still in flight
	}
	terms := send.Terms{Budget: l.cfg.budget, Lasting: true, Once: true, Cleaning: true}
	release := &endRequest{store: l.core.store, key: o.key, claim: Claim{Token: o.token}}
	if l.ask(o.ctx, terms, release) != nil {
		return progress{}
	}
	if release.ok {
		o.found = true
		l.core.recent.note(event.Reaped, o.event.Key)
		reaped := o.event
		reaped.Took = time.Since(o.began)
		l.announce(o.ctx, reaped)
	}
	return o.next(before, sent, closing)
}

// next says what follows an answered removal.
func (o *orphan) next(before send.Doubt, sent time.Time, closing bool) progress {
	if before.InFlight > 0 {
		o.early = true
		return progress{again: longPause}
	}
	possible := before.Lost + before.Answered
	if o.answered {
		possible++
	}
	lag, last := o.locker.core.maxLag-sent.Sub(before.Last), o.landed
	o.landed = lag <= 0
	if closing || before.Lost == 0 || o.found && possible == 1 || last {
		return progress{done: true}
	}
	o.pause = min(max(2*o.pause, firstPause), max(lag, firstPause))
	return progress{again: o.pause}
}
