package lock

import (
	"iter"
	"sync/atomic"

	"github.com/httplatch/httplatch/lock/internal/clock"
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
	clock.Queue[*holder]

	look atomic.Int64 // the moment of the next look through the local keys; never if all leases in it are written down
}

func (a *alarms) init(wake func()) {
	a.Queue = clock.NewQueue[*holder](wake)
	a.look.Store(int64(clock.Never))
}

// sees reports whether a lease that is due then will be found among the local keys in
// time. It needs no lock if the lease is known to be granted: a look first takes back
// its announcement, so a lease whose grant still sees the announcement is found by that look.
func (a *alarms) sees(due clock.Moment) bool { return int64(due) >= a.look.Load() }

// lookBefore has the local keys looked through when a lease is due then.
func (a *alarms) lookBefore(due clock.Moment) {
	if !a.sees(due) {
		a.look.Store(int64(due))
		a.Arm(due)
	}
}

// add writes down that e is due then.
func (a *alarms) add(e *Lease, due clock.Moment) {
	a.Put((*holder)(e), due)
	a.Arm(due)
}

// keep writes down e, which the local keys will no longer have.
func (a *alarms) keep(e *Lease) {
	if e.isNew() {
		a.add(e, e.local.Due)
	}
}

// start starts what is due, and looks through the local keys, which have all, if it is time
// for that.
func (a *alarms) start(all iter.Seq[*Lease]) {
	a.Fired()
	at := clock.Now()
	if a.sees(at) {
		a.look.Store(int64(clock.Never)) // first: see sees
		for e := range all {
			if e.isNew() {
				a.Put((*holder)(e), e.local.Due)
			}
		}
	}
	for at >= a.First() {
		go (*Lease)(a.Pop()).ring()
	}
	a.Arm(min(a.First(), clock.Moment(a.look.Load())))
}

// forget forgets all.
func (a *alarms) forget() {
	a.Clear()
	a.look.Store(int64(clock.Never))
}

// isNew reports whether e was granted and never written down.
func (e *Lease) isNew() bool { return e.claim.standing.granted() && e.local.New() }
