package local

// Decision is the end of a claim or of a run, for the callers that have waited for it. It is their
// answer too, if the store would give them the same answer.
type Decision interface {
	// Answers reports whether the decision ends the acquire of h. patient says that h waits for
	// holders.
	Answers(h Lease, patient bool) bool
	// Unserved reports whether the store did not serve the claim.
	Unserved() bool
	// FoundHolder reports whether the key has a holder.
	FoundHolder() bool
	// Detach copies the parts that its first caller may change. It is called before a waiter gets
	// the decision.
	Detach()
}

// Share gives the decision of decide to the waiters behind h that it answers, before the next of them
// gets the key. Without waiters, it does not call decide.
func (t *Table) Share(h *Holding, decide func() Decision) {
	s := t.shardOf(h)
	s.mu.Lock()
	d, answered := s.decide(h, decide)
	s.mu.Unlock()
	wake(d, answered)
}

// Rest notes that h is about to wait for another process, and gives d to the waiters behind
// h that d answers. asked has a value when other callers want a new answer.
func (t *Table) Rest(h *Holding, d Decision) (asked <-chan struct{}) {
	s := t.shardOf(h)
	s.mu.Lock()
	sl, again := h.needSlot(), make(chan struct{}, 1)
	answered := s.takeAnswered(h, d)
	sl.trigger = again // under the same lock as the answers: later callers are not among these
	s.mu.Unlock()
	wake(d, answered)
	return again
}

// decide takes the waiters that the decision of decide answers from the queue behind h.
func (s *shard) decide(h *Holding, decide func() Decision) (d Decision, answered []*Waiter) {
	if decide == nil || h.slot == nil {
		return nil, nil
	}
	d = decide()
	return d, s.takeAnswered(h, d)
}

// takeAnswered takes the waiters that d answers from the queue behind h. A poll that the store
// did not serve answers no waiter that knows of a holder: the next in the queue polls.
func (s *shard) takeAnswered(h *Holding, d Decision) (answered []*Waiter) {
	sl := h.slot
	if d == nil || sl == nil || !s.has(h) {
		return nil
	}
	for p := sl.queue.Front(); p != nil; {
		w := waiterAt(p)
		p = p.Next()
		waits := d.Unserved() && w.patient && w.knowsHolder(sl)
		if !waits && d.Answers(w.lease.lease, w.patient) {
			sl.remove(w)
			answered = append(answered, w)
		}
	}
	switch sl.unserved = nil; {
	case d.Unserved():
		sl.unserved = d
	case d.FoundHolder():
		sl.finds++
		sl.elsewhere = h.pending() // else it is h
	default:
		return answered
	}
	for sl.queue.Len() > maxWaiters {
		w := waiterAt(sl.queue.Back())
		sl.remove(w)
		answered = append(answered, w)
	}
	return answered
}

// wake gives d to waiters that have left their queue to get it.
func wake(d Decision, waiters []*Waiter) {
	if len(waiters) == 0 {
		return
	}
	d.Detach()
	for _, w := range waiters {
		w.decided = d
		close(w.ready)
	}
}
