package local

import "container/list"

// maxWaiters bounds the queue behind a holder, here or in another process. Any client can
// make a waiter, which is a goroutine.
const maxWaiters = 64

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
	held    bool          // the key had a holder when the waiter was queued, or a claim has found one since
	patient bool          // it waits for a holder, and not only for a decision
}

// Decision is the end of a claim or of a run, for the callers that have waited for it. It is their
// answer too, if the store would give them the same answer. It shares no bytes with its first caller.
type Decision interface {
	Answers(h Lease, patient bool) bool // it ends the acquire of h, which waits for holders if patient
	Unserved() bool                     // the store did not serve the claim
	FoundHolder() bool                  // the key has a holder
}

// slot has the callers that wait for a key. It belongs to the lease that has the key, and is made
// when it is first needed.
type slot struct {
	queue     list.List // of waiters, in the order of arrival
	elsewhere bool      // the holder that the latest claim has found is in another process
	unserved  Decision  // of the latest poll, nil if the store served it

	// trigger is not nil once a claim has found a holder in another process: the lease claims
	// the key again from time to time, and at once if there is a value.
	trigger chan struct{}
}

func (h *Holding) needSlot() *slot {
	if h.slot == nil {
		h.slot = new(slot)
	}
	return h.slot
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
	w := &Waiter{lease: h, patient: patient, Ready: make(chan struct{}), held: !holder.pending() || behind.trigger != nil}
	w.place = behind.queue.PushBack(w)
	return w
}

func waiterAt(place *list.Element) *Waiter {
	return place.Value.(*Waiter) //nolint:errcheck,forcetypeassert // a queue has no other values
}

// remove takes w from the queue, in constant time: tens of thousands can leave at once.
func (sl *slot) remove(w *Waiter) {
	sl.queue.Remove(w.place)
	w.place = nil
}

// pass gives the key to the first of the queue, and returns its lease.
func (sl *slot) pass() *Holding {
	w := waiterAt(sl.queue.Front())
	w.FoundHolder = w.patient && w.held
	w.FoundElsewhere = w.FoundHolder && sl.elsewhere
	sl.remove(w)
	sl.trigger, sl.unserved = nil, nil
	w.lease.slot = sl
	close(w.Ready)
	return w.lease
}

// triggerClaim makes the lease that waits for another process claim the key soon.
func (sl *slot) triggerClaim() {
	select {
	case sl.trigger <- struct{}{}:
	default: // the trigger has a value, or the claim is pending
	}
}

// Share gives the decision of decide to the waiters behind h that it answers, before the next of them
// gets the key. Without waiters, it does not call decide.
func (h *Holding) Share(decide func() Decision) {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	if h.slot != nil {
		h.answer(decide())
	}
}

// Rest notes that h is about to wait for another process, and gives d to the waiters behind
// h that d answers. asked has a value when other callers want a new answer.
func (h *Holding) Rest(d Decision) (asked <-chan struct{}) {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	sl, again := h.needSlot(), make(chan struct{}, 1)
	h.answer(d)
	sl.trigger = again // under the same lock as the answers: later callers are not among these
	return again
}

// answer ends the waits behind h that d answers; nil answers none. A poll that the store
// did not serve answers no waiter that knows of a holder: the next in the queue polls.
func (h *Holding) answer(d Decision) {
	if d == nil {
		return
	}
	sl := h.slot
	for p := sl.queue.Front(); p != nil; {
		w := waiterAt(p)
		p = p.Next()
		if waits := d.Unserved() && w.patient && w.held; !waits && d.Answers(w.lease.lease, w.patient) {
			sl.decide(w, d)
		} else {
			w.held = w.held || d.FoundHolder()
		}
	}
	switch sl.unserved = nil; {
	case d.Unserved():
		sl.unserved = d
	case d.FoundHolder():
		sl.elsewhere = h.pending() // else it is h
	default:
		return
	}
	for sl.queue.Len() > maxWaiters {
		sl.decide(waiterAt(sl.queue.Back()), d)
	}
}

func (sl *slot) decide(w *Waiter, d Decision) {
	sl.remove(w)
	w.Decided = d
	close(w.Ready)
}

// Stopped is the result of [Waiter.Stop].
type Stopped uint8

// The results of a stop.
const (
	StillWaiting   Stopped = iota // for the answer to a claim
	FoundHeld                     // by another caller
	FoundUndecided                // a claim or a settle of this process is still unanswered
	FoundReady                    // the waiter has the key, or there is a decision
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
	undecided := holder.confirm != nil || holder.pending() && !w.held
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
