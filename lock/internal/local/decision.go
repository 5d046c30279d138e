package local

// Decision is the end of a claim or of a run, for the callers that have waited for it. It is their
// answer too, if the store would give them the same answer. It shares no bytes with its first caller.
type Decision interface {
	// Answers reports whether the decision ends the acquire of h. patient says that h waits for
	// holders.
	Answers(h Lease, patient bool) bool
	// Unserved reports whether the store did not serve the claim.
	Unserved() bool
	// FoundHolder reports whether the key has a holder.
	FoundHolder() bool
}

// Share gives the decision of decide to the waiters behind h that it answers, before the next of them
// gets the key. Without waiters, it does not call decide.
func (h *Holding) Share(decide func() Decision) {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	h.answer(decide)
}

// Rest notes that h is about to wait for another process, and gives d to the waiters behind
// h that d answers. asked has a value when other callers want a new answer.
func (h *Holding) Rest(d Decision) (asked <-chan struct{}) {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	sl, again := h.needSlot(), make(chan struct{}, 1)
	h.answer(func() Decision { return d })
	sl.trigger = again // under the same lock as the answers: later callers are not among these
	return again
}

// answer ends the waits behind h that the decision of decide answers, if there are any. A poll that the store
// did not serve answers no waiter that knows of a holder: the next in the queue polls.
func (h *Holding) answer(decide func() Decision) {
	sl := h.slot
	if sl == nil || decide == nil {
		return
	}
	d := decide()
	if d == nil {
		return
	}
	for p := sl.queue.Front(); p != nil; {
		w := waiterAt(p)
		p = p.Next()
		waits := d.Unserved() && w.patient && w.knowsHolder(sl)
		if !waits && d.Answers(w.lease.lease, w.patient) {
			sl.answer(w, d)
		}
	}
	switch sl.unserved = nil; {
	case d.Unserved():
		sl.unserved = d
	case d.FoundHolder():
		sl.finds++
		sl.elsewhere = h.pending() // else it is h
	default:
		return
	}
	for sl.queue.Len() > maxWaiters {
		sl.answer(waiterAt(sl.queue.Back()), d)
	}
}

// answer ends the wait of w.
func (sl *slot) answer(w *Waiter, d Decision) {
	sl.remove(w)
	w.Decided = d
	close(w.Ready)
}
