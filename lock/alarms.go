package lock

import (
	"iter"
	"sync/atomic"
)

// alarms knows when something of the leases of a shard is due, such as their
// renewals. It is locked with the shard.
//
// Most leases end long before that, so a timer for each would be the most
// expensive thing about them, and do nothing, and even a place in a queue is
// much. Here they share one timer, and a new lease is not written down. The local
// keys have it anyway, and are looked through before the first of those leases is due
// that were granted since the last time: most of them have gone by then.
type alarms struct {
	timerQueue[*Lease]

	look atomic.Int64 // the moment of the next look through the local keys; never if all leases in it are written down
}

func (a *alarms) init(wake func()) {
	a.timerQueue = newTimerQueue[*Lease](wake)
	a.look.Store(never)
}

// sees reports whether a lease that is due then will be found among the local keys in
// time. It needs no lock if the lease is known to be granted: a look first takes back
// its announcement, so a lease whose grant still sees the announcement is found by that look.
func (a *alarms) sees(due moment) bool { return int64(due) >= a.look.Load() }

// lookBefore has the local keys looked through when a lease is due then.
func (a *alarms) lookBefore(due moment) {
	if !a.sees(due) {
		a.look.Store(int64(due))
		a.arm(due)
	}
}

// add writes down that e is due then.
func (a *alarms) add(e *Lease, due moment) {
	a.put(e, due)
	a.arm(due)
}

// keep writes down e, which the local keys will no longer have.
func (a *alarms) keep(e *Lease) {
	if e.isNew() {
		a.add(e, e.local.due)
	}
}

// start starts what is due, and looks through the local keys, which have all, if it is time
// for that.
func (a *alarms) start(all iter.Seq[*Lease]) {
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
func (a *alarms) forget() {
	a.clear()
	a.look.Store(never)
}

// isNew reports whether e was granted and never written down.
func (e *Lease) isNew() bool { return e.claim.standing.granted() && e.local.place == 0 }
