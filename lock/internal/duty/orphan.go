package duty

import (
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
	// firstPause is the pause between the first removal and the second.
	firstPause = time.Second

	// maxAwaited bounds how long a send in flight delays the first removal.
	maxAwaited = time.Second
)

// AddOrphan lets the queue remove the entry of o, unless its token is known already.
func (q *Queue) AddOrphan(o *Orphan) {
	wait, doubt := time.Duration(0), o.Flight.Doubt()
	if doubt.InFlight > 0 && !o.Answered {
		wait = maxAwaited
		o.waited = doubt.Lost+doubt.Answered == 0
	}
	o.began = time.Now()
	q.mu.Lock()
	d, dropped := q.keep(o, wait)
	q.mu.Unlock()
	if dropped {
		o.Dropped()
	}
	if d != nil && doubt.InFlight > 0 {
		o.Flight.WhenLanded(func() { q.Now(d) })
	}
	q.wake()
}

// try sends one compare-and-delete, and returns the pause before the next. Close cannot
// wait for the network's longest delay: an entry that lands after the process has ended is
// gone after at most one lease.
func (o *Orphan) try(maxLag time.Duration, closing bool) Progress {
	before, sent := o.Flight.Doubt(), time.Now()
	switch {
	case before.InFlight > 0 && o.early:
		return Progress{Unsent: true, Again: longPause}
	case o.waited && before.InFlight+before.Lost+before.Answered == 0:
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
	possible := before.Lost + before.Answered
	if o.Answered {
		possible++
	}
	lag, landedBefore := maxLag-sent.Sub(before.Last), o.landed
	o.landed = lag <= 0
	if closing || before.Lost == 0 || o.found && possible == 1 || landedBefore {
		return Progress{Done: true}
	}
	o.pause = min(max(2*o.pause, firstPause), max(lag, firstPause))
	return Progress{Again: o.pause}
}
