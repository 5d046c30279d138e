package local

import "container/list"

// Waiter waits for a key that another lease of this process has, or claims.
type Waiter struct {
	Ready chan struct{} // closed when the lease has the key, or there is a decision

	// Written before Ready is closed.
	FoundHolder    bool     // the key had a holder before the lease got it
	FoundElsewhere bool     // that holder is in another process, and may not have ended
	Decided        Decision // nil if the lease has the key

	Unserved Decision // once the wait was stopped: of the latest poll if the store did not serve it, else nil

	lease *Holding

	// Locked with the shard of the key.
	place   *list.Element // in the queue, nil once the waiter has left it
	finds   int           // of the slot, when the waiter was queued
	held    bool          // the key had a holder when the waiter was queued
	patient bool          // it waits for a holder, and not only for a decision
}

// maxWaiters bounds the queue behind a holder, here or in another process. Any client can
// make a waiter, which is a goroutine.
const maxWaiters = 64

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
		lease: h, patient: patient, Ready: make(chan struct{}), finds: behind.finds,
		held: !holder.pending() || behind.trigger != nil,
	}
	w.place = behind.queue.PushBack(w)
	return w
}

// Stopped is the result of [Waiter.Stop].
type Stopped uint8

const (
	// StillWaiting says that the wait goes on, for the answer to a claim.
	StillWaiting Stopped = iota
	// FoundHeld says that another caller holds the key.
	FoundHeld
	// FoundUndecided says that a claim or a settle of this process is still unanswered.
	FoundUndecided
	// FoundReady says that the waiter has the key, or that there is a decision.
	FoundReady
)

// Stop ends the wait of w. With forAnswer, w goes on to wait for the answer to a pending claim,
// and no longer for holders.
func (w *Waiter) Stop(forAnswer bool) Stopped {
	s := w.lease.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.place == nil {
		return FoundReady
	}
	holder := s.holders[w.lease.name]
	sl := holder.slot
	undecided := holder.confirm != nil || holder.pending() && !w.knowsHolder(sl)
	if forAnswer && holder.pending() && (undecided || sl.trigger != nil) {
		w.patient = false
		sl.triggerClaim()
		return StillWaiting
	}
	sl.remove(w)
	w.Unserved = sl.unserved
	if undecided {
		return FoundUndecided
	}
	return FoundHeld
}

// Cancel ends the wait of w, which no longer wants the key. If w has the key, it goes
// to the next waiter.
func (w *Waiter) Cancel() Stopped {
	stopped := w.Stop(false)
	if stopped == FoundReady {
		w.lease.Leave(nil)
	}
	return stopped
}
