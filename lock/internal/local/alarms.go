package local

import "github.com/httplatch/httplatch/lock/internal/clock"

// ring rings the leases that are due, for example when a renewal is. If a look is due, it first
// looks through all leases, and queues the new ones.
//
// Most leases end long before an alarm. A timer for each would be the largest part of their
// cost, and even a place in a queue costs much. So all share one timer, and a new lease is in no
// queue: the look comes before the first alarm of a new lease, and most have ended by then.
func (s *shard) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := clock.Now()
	s.alarms.Fired()
	if at >= s.nextLook {
		s.nextLook = clock.Never
		for _, h := range s.holders {
			if h.Granted() && h.Place == 0 {
				s.alarms.Put(h, h.Due)
			}
		}
	}
	for at >= s.alarms.First() {
		go s.alarms.Pop().lease.Ring()
	}
	s.alarms.Arm(min(s.alarms.First(), s.nextLook))
}

// SetAlarm rings h at due, unless h has left its key.
func (h *Holding) SetAlarm(due clock.Moment) {
	s := h.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders[h.name] == h {
		s.alarms.Put(h, due)
		s.alarms.Arm(due)
	}
}
