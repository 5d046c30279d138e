package local

import (
	"iter"
	"sync/atomic"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// alarms ring the leases of a shard at their due moments, for example when a renewal is due. They
// are locked with the shard.
//
// Most leases end long before an alarm. A timer for each would be the largest part of their
// cost, and even a place in a queue costs much. So all share one timer, and a new lease is in no
// queue. The shard looks through all of its leases before the first alarm of a new one, and
// queues the new leases that it finds. Most have ended by then.
type alarms struct {
	clock.Queue[*Holding]

	nextLook atomic.Int64 // the moment of the next look; Never if all leases of the shard are queued
}

func (a *alarms) init(wake func()) {
	a.Queue = clock.NewQueue[*Holding](wake)
	a.nextLook.Store(int64(clock.Never))
}

// lookComesBefore reports whether the next look runs before due.
//
// It is called without the lock for a lease that was granted (1) before the call reads the
// announcement (2). A look withdraws its announcement (3) before it reads the leases (4). If 2 still
// finds the announcement, then 2 comes before 3, so 1 comes before 4: the look finds the lease.
func (a *alarms) lookComesBefore(due clock.Moment) bool { return int64(due) >= a.nextLook.Load() }

// announceLook announces a look for a lease that is due at due.
func (a *alarms) announceLook(due clock.Moment) {
	if !a.lookComesBefore(due) {
		a.nextLook.Store(int64(due))
		a.Arm(due)
	}
}

// add queues h.
func (a *alarms) add(h *Holding, due clock.Moment) {
	a.Put(h, due)
	a.Arm(due)
}

// keep queues h, which is about to leave the shard.
func (a *alarms) keep(h *Holding) {
	if h.isNew() {
		a.add(h, h.Due)
	}
}

// ring rings the leases that are due. If a look is due, it also looks through all leases.
func (a *alarms) ring(all iter.Seq[*Holding]) {
	a.Fired()
	at := clock.Now()
	if a.lookComesBefore(at) {
		a.nextLook.Store(int64(clock.Never)) // first: see lookComesBefore
		for h := range all {
			if h.isNew() {
				a.Put(h, h.Due)
			}
		}
	}
	for at >= a.First() {
		go a.Pop().lease.Ring()
	}
	a.Arm(min(a.First(), clock.Moment(a.nextLook.Load())))
}

// forget drops all alarms.
func (a *alarms) forget() {
	a.Clear()
	a.nextLook.Store(int64(clock.Never))
}

// isNew reports whether the lease was granted and never queued for an alarm.
func (h *Holding) isNew() bool { return h.Granted() && h.NeverQueued() }

// ScheduleNew rings h, which was granted just now, at due. due was the Due of the Holding of h, which
// an alarm may have changed by now.
func (t *Table) ScheduleNew(h *Holding, due clock.Moment) {
	s := t.shardOf(h)
	if s.alarms.lookComesBefore(due) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarms.announceLook(due)
}

// Schedule rings h at due.
func (t *Table) Schedule(h *Holding, due clock.Moment) {
	s := t.shardOf(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarms.add(h, due)
}

func (s *shard) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarms.ring(s.leases())
}

// ForgetAlarms drops all alarms.
func (t *Table) ForgetAlarms() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.alarms.forget()
		s.mu.Unlock()
	}
}
