package cleanup

import (
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// Orphan is a claim without a holder. Its entry may be in the store now, or land later.
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
	Remover

	Flight   *send.Flight
	Answered bool          // the claim was answered, and its entry exists
	Takeover bool          // the entry stands for work of unknown outcome, and is not removed
	Linger   time.Duration // the time by which the entry outlives its lease
	Began    time.Time

	waited bool // a send was in flight at first, and is the only doubt
	early  bool // a removal was answered while a send was in flight
	found  bool
	landed bool          // no send of the claim could land after the last answered removal
	pause  time.Duration // before the next removal
}

// Remover removes the entry of an [Orphan], and reports on it.
type Remover interface {
	// Remove sends one compare-and-delete. found says that it removed the entry.
	Remove() (found bool, err error)
	// Removed reports that the entry was found and removed.
	Removed()
	// Dropped reports that a removal was given up for a newer one.
	Dropped()
}

const (
	// firstPause is the pause between the first removal and the second.
	firstPause = time.Second

	// maxAwaited bounds how long a send in flight delays the first removal.
	maxAwaited = time.Second
)

// entryMayExistUntil returns the latest time at which the entry of o can still exist.
func (c *Cleaner) entryMayExistUntil(o *Orphan) time.Time {
	last := o.Began
	switch doubt := o.Flight.Doubt(); {
	case doubt.InFlight > 0:
		last = time.Now()
	case doubt.Last.After(last):
		last = doubt.Last
	}
	return last.Add(c.maxLag + c.longestLease())
}

// remove sends one compare-and-delete, and returns the pause before the next. Close cannot
// wait for the network's longest delay: an entry that lands after the process has ended is
// gone after at most one lease.
func (c *Cleaner) remove(o *Orphan, closing bool) Progress {
	before, sent := o.Flight.Doubt(), time.Now()
	switch {
	case before.InFlight > 0 && o.early:
		return Progress{Unsent: true, Again: longPause}
	case o.waited && before.InFlight+before.Lost+before.Answered == 0:
		return Progress{Unsent: true, Done: true} // the store has refused the send that was in flight
	}
	found, err := o.Remove()
	if err != nil {
		return Progress{}
	}
	if found {
		o.found = true
		o.Removed()
	}
	return c.next(o, before, sent, closing)
}

// next returns the next step after an answered removal.
func (c *Cleaner) next(o *Orphan, before send.Doubt, sent time.Time, closing bool) Progress {
	if before.InFlight > 0 {
		o.early = true
		return Progress{Again: longPause}
	}
	possible := before.Lost + before.Answered
	if o.Answered {
		possible++
	}
	lag, landedBefore := c.maxLag-sent.Sub(before.Last), o.landed
	o.landed = lag <= 0
	if closing || before.Lost == 0 || o.found && possible == 1 || landedBefore {
		return Progress{Done: true}
	}
	o.pause = min(max(2*o.pause, firstPause), max(lag, firstPause))
	return Progress{Again: o.pause}
}
