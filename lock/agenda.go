package lock

import (
	"iter"
	"sync/atomic"
)

// agenda knows when something of the leases of a gate's shard is due, such as their
// renewals. It is locked with the shard.
//
// Most leases end long before that, so a timer for each would be the most
// expensive thing about them, and do nothing, and even a line on the agenda is
// much. Here they share one timer, and a new lease is not written down. The gate
// has it anyway, and is looked through before the first of those leases is due
// that were granted since the last time: most of them have gone by then.
type agenda struct {
	timerQueue[*Lease]

	look atomic.Int64 // the moment of the next look through the gate; never if all leases in it are written down
}

func (a *agenda) init(wake func()) {
	a.timerQueue = newTimerQueue[*Lease](wake)
	a.look.Store(never)
}

// sees reports whether a lease that is due then will be found in the gate in
// time. It needs no lock if the lease is known to be granted: a look first takes back
// its announcement, so a lease whose grant still sees the announcement is found by that look.
func (a *agenda) sees(due moment) bool { return int64(due) >= a.look.Load() }

// lookBefore has the gate looked through when a lease is due then.
func (a *agenda) lookBefore(due moment) {
	if !a.sees(due) {
		a.look.Store(int64(due))
		a.arm(due)
	}
}

// add writes down that e is due then.
func (a *agenda) add(e *Lease, due moment) {
	a.put(e, due)
	a.arm(due)
}

// keep writes down e, which the gate will not have any longer.
func (a *agenda) keep(e *Lease) {
	if e.isNew() {
		a.add(e, e.local.due)
	}
}

// start starts what is due, and looks through the gate, which has all, if it is time
// for that.
func (a *agenda) start(all iter.Seq[*Lease]) {
	a.fired()
	at := now()
	if a.sees(at) {
		a.look.Store(never) // first: see sees
		for e := range all {
			if e.isNew() {
				a.put(e, e.local.due)
			}
		}
	}
	for at >= a.first() {
		go a.pop().ring()
	}
	a.arm(min(a.first(), moment(a.look.Load())))
}

// forget forgets all.
func (a *agenda) forget() {
	a.clear()
	a.look.Store(never)
}

// isNew reports whether e was granted and never written down.
func (e *Lease) isNew() bool { return e.claim.standing.granted() && e.local.place == 0 }
