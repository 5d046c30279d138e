package lock

import "container/list"

// waiter waits for a key that another lease of this process has, or asks for.
type waiter struct {
	lease   *Lease
	place   *list.Element // in the queue, nil if it has left; locked with the shard of its key
	patient bool          // it would wait for a holder too; locked with the shard of its key
	finds   int           // of the slot when it met a claim on its way; -1 if it met a holder
	met     bool          // a holder was met when the key became the waiter's; written like decided
	ready   chan struct{} // closed when the key is the waiter's, or its decision is there
	decided *decision     // nil if the key is the waiter's; written before ready is closed

	unserved *decision // of the slot, when w left its queue
	usurped  *Lease    // whose key it has taken
}

// maxWaiters bounds the queue behind a holder, here or in another process. A waiter
// is a goroutine that any client can make. Those behind a claim that is on its way are
// not bounded: their wait is, by the budget.
const maxWaiters = 64

// enqueue has e wait for what holder has.
func (*keyShard) enqueue(e, holder *Lease, patient bool) *waiter {
	behind := holder.needSlot()
	w := &waiter{lease: e, patient: patient, ready: make(chan struct{}), finds: behind.finds}
	if !holder.pending() || behind.asked != nil {
		w.finds = -1
	}
	w.place = behind.queue.PushBack(w)
	return w
}

// stopWaiting ends the wait of w, and says in which way. usurp takes the key from a
// holder whose work is over, though the store has not confirmed its end. early says
// that w can wait for an answer of the store, and only for holders no longer.
func (k *localKeys) stopWaiting(w *waiter, usurp, early bool) quitted {
	s := w.lease.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	holder := s.holders[w.lease.key]
	if holder == w.lease {
		return quitGiven
	}
	if w.place == nil {
		return quitDecided
	}
	sl := holder.local.slot
	pending := holder.pending() && !w.hasMet(sl)
	if early && (pending || holder.pending() && sl.asked != nil) {
		w.patient = false
		sl.ask()
		return quitNot
	}
	sl.remove(w)
	w.unserved = sl.unserved
	switch {
	case pending:
		return quitPending
	case sl.confirmEnd == nil:
		return quitHeld
	case usurp:
		s.alarms.keep(holder) // until it has the store's word, it is renewed
		s.hand(holder, w.lease)
		w.usurped = holder
		return quitUsurped
	default:
		return quitEnding
	}
}

// quitted is what a waiter finds that does not want to wait any longer.
type quitted uint8

const (
	quitNot     quitted = iota // it waits on, for a claim that is on its way
	quitHeld                   // another caller holds the key
	quitPending                // the claim that it has met is still unanswered
	quitEnding                 // its holder only waits for the store's word
	quitUsurped                // so did its holder, and it is the waiter's now
	quitGiven                  // it was the waiter's already
	quitDecided                // the waiter's decision was there already, or is about to be
)

// cancelWait ends the wait of w, which no longer wants the key: if w was given
// it, the key goes on to the next waiter.
func (k *localKeys) cancelWait(w *waiter) quitted {
	q := k.stopWaiting(w, false, false)
	if q == quitGiven {
		k.leave(w.lease)
	}
	return q
}

// ask has the key claimed soon by the lease that waits for another process.
func (sl *slot) ask() {
	select {
	case sl.asked <- struct{}{}:
	default: // it is asked, or its claim is on its way
	}
}

// remove takes w from the queue, in a time that does not depend on how many there are:
// tens of thousands can leave at once.
func (sl *slot) remove(w *waiter) {
	sl.queue.Remove(w.place)
	w.place = nil
}

// share gives d to those behind e whom it answers. They go before the next one
// gets the key.
func (k *localKeys) share(e *Lease, d *decision) {
	s := e.shard()
	s.mu.Lock()
	answered := s.answered(e, d)
	s.mu.Unlock()
	d.wake(answered)
}

// rests says that e is about to wait for another process, as d says, and shares
// that with those behind it who do not. What is sent to asked says that others want
// to know how it is by then.
func (k *localKeys) rests(e *Lease, d *decision) (asked <-chan struct{}) {
	s := e.shard()
	s.mu.Lock()
	sl, again := e.needSlot(), make(chan struct{}, 1)
	answered := s.answered(e, d)
	sl.asked = again // under the same lock as the answers: later callers are not among these
	s.mu.Unlock()
	d.wake(answered)
	return again
}

// answered takes those whom d answers from the queue behind e. A poll that the store did
// not serve answers no one that waits for a holder it has met: the next in the queue polls.
func (s *keyShard) answered(e *Lease, d *decision) (answered []*waiter) {
	if d == nil || e.local.slot == nil || s.holders[e.key] != e {
		return nil
	}
	sl := e.local.slot
	for p := sl.queue.Front(); p != nil; {
		w := p.Value.(*waiter) //nolint:errcheck,forcetypeassert // it has no others
		p = p.Next()
		waits := d.err != nil && w.patient && w.hasMet(sl)
		if !waits && d.reason(w.lease, w.patient) != nil {
			sl.remove(w)
			answered = append(answered, w)
		}
	}
	switch sl.unserved = nil; {
	case d.err != nil:
		sl.unserved = d
	case d.entry.State == Held:
		sl.finds++
	default:
		return answered
	}
	for sl.queue.Len() > maxWaiters {
		w := sl.queue.Back().Value.(*waiter) //nolint:errcheck,forcetypeassert // it has no others
		sl.remove(w)
		answered = append(answered, w)
	}
	return answered
}

// hasMet reports whether w has met a holder, or one was found since it came.
func (w *waiter) hasMet(sl *slot) bool { return w.finds != sl.finds }

// hand makes next the holder of what holder had.
func (s *keyShard) hand(holder, next *Lease) {
	next.local.slot, holder.local.slot = holder.local.slot, nil
	next.local.slot.confirmEnd, next.local.slot.asked, next.local.slot.unserved = nil, nil, nil
	next.claim.standing.meet() // those who are left in the queue
	s.holders[next.key] = next
}

// pass gives the key of e to the first of its queue.
func (s *keyShard) pass(e *Lease) {
	sl := e.local.slot
	if sl == nil || sl.queue.Len() == 0 {
		delete(s.holders, e.key)
		return
	}
	next := sl.queue.Front().Value.(*waiter) //nolint:errcheck,forcetypeassert // it has no others
	next.met = next.patient && next.hasMet(sl)
	sl.remove(next)
	s.hand(e, next.lease)
	close(next.ready)
}
