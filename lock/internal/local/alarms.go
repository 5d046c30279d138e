package local

import "github.com/httplatch/httplatch/lock/internal/clock"

// alarms ring the leases of a shard at their due moments, for example when a renewal is due. They
// are locked with the shard.
//
// Most leases end long before an alarm. A timer for each would be the largest part of their
// cost, and even a place in a queue costs much. So all share one timer, and a new lease is in no
// queue. The shard looks through all of its leases before the first alarm of a new one, and
// queues the new leases that it finds. Most have ended by then.
type alarms struct {
	clock.Queue[*Holding]

	nextLook clock.Moment // Never if all leases of the shard are queued
}

func (a *alarms) init(wake func()) {
	a.Queue, a.nextLook = clock.NewQueue[*Holding](wake), clock.Never
}

// announceLook announces a look for a lease that is due at due.
func (a *alarms) announceLook(due clock.Moment) {
	if due < a.nextLook {
		a.nextLook = due
		a.Arm(due)
	}
}

// ring rings the leases that are due. If a look is due, it also looks through all leases.
func (s *shard) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, at := &s.alarms, clock.Now()
	a.Fired()
	if at >= a.nextLook {
		a.nextLook = clock.Never
		for _, h := range s.holders {
			if h.Granted() && h.NeverQueued() {
				a.Put(h, h.Due)
			}
		}
	}
	for at >= a.First() {
		go a.Pop().lease.Ring()
	}
	a.Arm(min(a.First(), a.nextLook))
}

// Schedule rings h at due, unless h has left its key.
func (t *Table) Schedule(h *Holding, due clock.Moment) {
	s := t.shardOf(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has(h) {
		s.alarms.Put(h, due)
		s.alarms.Arm(due)
	}
}
