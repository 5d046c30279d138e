package lock

import "slices"

// waiter waits for a key that another lease of this process has, or asks for.
type waiter struct {
	lease   *Lease
	patient bool          // it would wait for a holder too; locked with the shard of its key
	finds   int           // of the slot when it met a claim on its way; -1 if it met a holder
	ready   chan struct{} // closed when the key is the waiter's, or its decision is there
	decided *decision     // nil if the key is the waiter's; written before ready is closed
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
	behind.queue = append(behind.queue, w)
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
	i := holder.queued(w)
	if i < 0 {
		return quitDecided
	}
	sl := holder.local.slot
	pending := holder.pending() && w.finds == sl.finds
	if early && (pending || holder.pending() && sl.asked != nil) {
		w.patient = false
		sl.ask()
		return quitNot
	}
	sl.queue = slices.Delete(sl.queue, i, i+1)
	switch {
	case pending:
		return quitPending
	case sl.confirmEnd == nil:
		return quitHeld
	case usurp:
		s.alarms.keep(holder) // until it has the store's word, it is renewed
		s.hand(holder, w.lease)
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

// queued is the place of w in the queue behind e, -1 if it is not there.
func (e *Lease) queued(w *waiter) int {
	if e == nil || e.local.slot == nil {
		return -1
	}
	return slices.Index(e.local.slot.queue, w)
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
	answered := s.answered(e, d)
	again := make(chan struct{}, 1)
	e.needSlot().asked = again // under the same lock as the answers: later callers are not among these
	s.mu.Unlock()
	d.wake(answered)
	return again
}

// answered takes those whom d answers from the queue behind e.
func (s *keyShard) answered(e *Lease, d *decision) (answered []*waiter) {
	if d == nil || e.local.slot == nil || s.holders[e.key] != e {
		return nil
	}
	e.local.slot.queue = slices.DeleteFunc(e.local.slot.queue, func(w *waiter) bool {
		if d.reason(w.lease, w.patient) == nil {
			return false
		}
		answered = append(answered, w)
		return true
	})
	if d.entry.State != Held {
		return answered
	}
	e.local.slot.finds++
	if len(e.local.slot.queue) > maxWaiters {
		answered = append(answered, e.local.slot.queue[maxWaiters:]...)
		clear(e.local.slot.queue[maxWaiters:])
		e.local.slot.queue = e.local.slot.queue[:maxWaiters]
	}
	return answered
}

// hand makes next the holder of what holder had.
func (s *keyShard) hand(holder, next *Lease) {
	next.local.slot, holder.local.slot = holder.local.slot, nil
	next.local.slot.confirmEnd, next.local.slot.asked = nil, nil
	next.claim.standing.meet() // those who are left in the queue
	s.holders[next.key] = next
}

// pass gives the key of e to the first of its queue.
func (s *keyShard) pass(e *Lease) {
	if e.local.slot == nil || len(e.local.slot.queue) == 0 {
		delete(s.holders, e.key)
		return
	}
	next := e.local.slot.queue[0]
	e.local.slot.queue = slices.Delete(e.local.slot.queue, 0, 1)
	s.hand(e, next.lease)
	close(next.ready)
}
