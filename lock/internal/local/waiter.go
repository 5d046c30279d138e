package local

import "container/list"

// Waiter waits for a key that another lease of this process has, or claims.
type Waiter struct {
	lease *Holding
	ready chan struct{} // closed when the lease has the key, or there is a decision

	// Locked with the shard of the key.
	place   *list.Element // in the queue, nil once the waiter has left it
	finds   int           // of the slot, when the waiter was queued
	held    bool          // the key had a holder when the waiter was queued
	patient bool          // it waits for a holder, and not only for a decision

	// Written before ready is closed.
	foundHolder    bool     // the key had a holder before the lease got it
	foundElsewhere bool     // that holder is in another process, and may not have ended
	decided        Decision // nil if the lease has the key

	unserved Decision // of the slot, when the waiter left the queue by itself
}

// maxWaiters bounds the queue behind a holder, here or in another process. Any client can
// make a waiter, which is a goroutine.
const maxWaiters = 64

// Ready is closed when the lease has the key, or there is a decision.
func (w *Waiter) Ready() <-chan struct{} { return w.ready }

// Lease returns the lease that waits.
func (w *Waiter) Lease() Lease { return w.lease.lease }

// FoundHolder reports whether the key had a holder before the lease got it, and whether that holder is
// in another process, as far as is known. It may be called once w is ready.
func (w *Waiter) FoundHolder() (found, elsewhere bool) { return w.foundHolder, w.foundElsewhere }

// Decided returns the decision, nil if the lease has the key. It may be called once w is
// ready.
func (w *Waiter) Decided() Decision { return w.decided }

// Unserved returns the decision of the latest poll if the store did not serve it, else nil.
// It may be called once the wait was stopped.
func (w *Waiter) Unserved() Decision { return w.unserved }

// knowsHolder reports whether the key had a holder when w was queued, or a claim has found one since.
func (w *Waiter) knowsHolder(sl *slot) bool { return w.held || w.finds != sl.finds }

func waiterAt(place *list.Element) *Waiter {
	return place.Value.(*Waiter) //nolint:errcheck,forcetypeassert // a queue has no other values
}

// waiting returns the number of callers that wait for the key of h.
func (h *Holding) waiting() int {
	if h.slot == nil {
		return 0
	}
	return h.slot.queue.Len()
}

// enqueue queues h behind holder. The shard is locked.
func enqueue(h, holder *Holding, patient bool) *Waiter {
	behind := holder.needSlot()
	w := &Waiter{
		lease: h, patient: patient, ready: make(chan struct{}), finds: behind.finds,
		held: !holder.pending() || behind.trigger != nil,
	}
	w.place = behind.queue.PushBack(w)
	return w
}

// Stopped is the result of [Table.StopWaiting].
type Stopped uint8

const (
	// StillWaiting says that the wait goes on, for the answer to a claim.
	StillWaiting Stopped = iota
	// FoundHeld says that another caller holds the key.
	FoundHeld
	// FoundUndecided says that a claim or a settle of this process is still unanswered.
	FoundUndecided
	// FoundGiven says that the waiter had the key already.
	FoundGiven
	// FoundDecided says that there is a decision, or that it comes at any moment.
	FoundDecided
)

// StopWaiting ends the wait of w. With forAnswer, w goes on to wait for the answer to a pending claim,
// and no longer for holders.
func (t *Table) StopWaiting(w *Waiter, forAnswer bool) Stopped {
	s := t.shardOf(w.lease)
	s.mu.Lock()
	defer s.mu.Unlock()
	holder := s.holders[w.lease.name]
	switch {
	case holder == w.lease:
		return FoundGiven
	case w.place == nil:
		return FoundDecided
	}
	sl := holder.slot
	undecided := holder.confirm != nil || holder.pending() && !w.knowsHolder(sl)
	if forAnswer && holder.pending() && (undecided || sl.trigger != nil) {
		w.patient = false
		sl.triggerClaim()
		return StillWaiting
	}
	sl.remove(w)
	w.unserved = sl.unserved
	if undecided {
		return FoundUndecided
	}
	return FoundHeld
}

// CancelWait ends the wait of w, which no longer wants the key. If w has the key, it goes
// to the next waiter.
func (t *Table) CancelWait(w *Waiter) Stopped {
	stopped := t.StopWaiting(w, false)
	if stopped == FoundGiven {
		t.Leave(w.lease, nil)
	}
	return stopped
}
