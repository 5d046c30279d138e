package lock

import (
	"container/heap"
	"iter"
	"math"
	"sync/atomic"
	"time"
)

// agenda knows when the leases of a gate's shard are to be renewed. It is locked
// with the shard.
//
// Most leases end long before that, so a timer for each would be the most
// expensive thing about them, and do nothing, and even a line on the agenda is
// much. Here they share one timer, and a new lease is not written down. The gate
// has it anyway, and is looked through before the first of those leases is due
// that were granted since the last time: most of them have gone by then.
type agenda struct {
	leases dueHeap[*Lease]
	wake   func() // calls start
	timer  *time.Timer
	set    moment       // when the timer fires; never if it does not
	look   atomic.Int64 // the moment of the next look through the gate; never if all leases in it are written down
}

const never = math.MaxInt64

func (a *agenda) init(wake func()) {
	a.wake, a.set = wake, never
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
		a.arm()
	}
}

// add writes down that e is to be renewed when it is due.
func (a *agenda) add(e *Lease, due moment) {
	e.due = due
	heap.Push(&a.leases, e)
	a.arm()
}

// keep writes down e, which the gate will not have any longer.
func (a *agenda) keep(e *Lease) {
	if e.isNew() {
		a.add(e, e.due)
	}
}

// drop takes e off if it is there.
func (a *agenda) drop(e *Lease) {
	if e.place > 0 {
		heap.Remove(&a.leases, int(e.place-1))
	}
}

// start starts the renewals that are due, and looks through the gate, which has all,
// if it is time for that.
func (a *agenda) start(all iter.Seq[*Lease]) {
	a.set = never
	at := now()
	if a.sees(at) {
		a.look.Store(never) // first: see sees
		for e := range all {
			if e.isNew() {
				heap.Push(&a.leases, e)
			}
		}
	}
	for len(a.leases) > 0 && at >= a.leases[0].due {
		e := a.leases[0]
		heap.Pop(&a.leases)
		go e.renew()
	}
	a.arm()
}

// arm sets the timer for what comes first, unless it fires before that anyway.
func (a *agenda) arm() {
	first := moment(a.look.Load())
	if len(a.leases) > 0 {
		first = min(first, a.leases[0].due)
	}
	if first >= a.set {
		return
	}
	a.set = first
	if a.timer == nil {
		a.timer = time.AfterFunc(first.until(), a.wake)
		return
	}
	a.timer.Reset(first.until())
}

// stop forgets all.
func (a *agenda) stop() {
	for len(a.leases) > 0 {
		heap.Pop(&a.leases)
	}
	a.look.Store(never)
	if a.timer != nil {
		a.timer.Stop()
		a.set = never
	}
}

// offAgenda is the place of a lease that was taken off the agenda: its renewal
// runs, or there will be none.
const offAgenda = -1

// isNew reports whether e was granted and never written down.
func (e *Lease) isNew() bool { return e.standing.granted() && e.place == 0 }

// dueBefore and moved are for dueHeap.
func (e *Lease) dueBefore(other *Lease) bool { return e.due < other.due }

func (e *Lease) moved(to int) {
	e.place = int32(to + 1) //nolint:gosec // not so many leases fit in any memory
	if to == nowhere {
		e.place = offAgenda
	}
}
