package lock

import "slices"

// waiter waits for a key that another lease of this process has, or asks for.
type waiter struct {
	lease   *Lease
	patient bool          // it would wait for a holder too
	ready   chan struct{} // closed when the key is the waiter's, or its decision is there
	decided *decision     // nil if the key is the waiter's; written before ready is closed
}

// maxWaiters bounds the queue behind a holder. A waiter is a goroutine that
// anybody can make. Those behind a claim that is still pending are not bounded:
// their wait is, by the budget. Its answer refuses those beyond the bound, also if
// the holder is another process, and the claim goes on.
const maxWaiters = 64

// enqueue has e wait for what holder has.
func (*gateShard) enqueue(e, holder *Lease, patient bool) *waiter {
	w := &waiter{lease: e, patient: patient, ready: make(chan struct{})}
	behind := holder.needSlot()
	behind.queue = append(behind.queue, w)
	return w
}

// quit ends the wait of w, and says in which way. usurp takes the key from a
// holder whose work is over, though the store has not confirmed its end.
func (g *gate) quit(w *waiter, usurp bool) quitted {
	s := w.lease.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	holder := s.holders.find(w.lease.key, w.lease.hash)
	if holder == w.lease {
		return quitGiven
	}
	i := holder.queued(w)
	if i < 0 {
		return quitDecided
	}
	sl := holder.slot
	sl.queue = slices.Delete(sl.queue, i, i+1)
	switch {
	case holder.pending() && !holder.standing.refused():
		return quitPending
	case sl.ending == nil:
		return quitHeld
	case usurp:
		s.agenda.keep(holder) // until it has the store's word, it is renewed
		s.hand(holder, w.lease)
		return quitUsurped
	default:
		return quitEnding
	}
}

// quitted is what a waiter finds that does not want to wait any longer.
type quitted uint8

const (
	quitHeld    quitted = iota // somebody holds the key, here or in another process
	quitPending                // the claim of who asks for it is still unanswered
	quitEnding                 // its holder only waits for the store's word
	quitUsurped                // so did its holder, and it is the waiter's now
	quitGiven                  // it was the waiter's already
	quitDecided                // the waiter's decision was there already, or is about to be
)

// desert ends the wait of w without interest in the key: if w was given it, it
// goes on to the next.
func (g *gate) desert(w *waiter) quitted {
	q := g.quit(w, false)
	if q == quitGiven {
		g.leave(w.lease)
	}
	return q
}

// waitsForClaim reports whether w waits for a claim that was never answered.
func (g *gate) waitsForClaim(w *waiter) bool {
	s := w.lease.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	holder := s.holders.find(w.lease.key, w.lease.hash)
	return holder.queued(w) >= 0 && holder.pending() && !holder.standing.refused()
}

// queued is the place of w in the queue behind e, -1 if it is not there.
func (e *Lease) queued(w *waiter) int {
	if e == nil || e.slot == nil {
		return -1
	}
	return slices.Index(e.slot.queue, w)
}

// share gives d to those behind e whom it answers. They go before the next one
// gets the key.
func (g *gate) share(e *Lease, d *decision) {
	s := e.shard()
	s.mu.Lock()
	answered := s.answered(e, d)
	s.mu.Unlock()
	d.wake(answered)
}

// answered takes those whom d answers from the queue behind e.
func (s *gateShard) answered(e *Lease, d *decision) (answered []*waiter) {
	if d == nil || e.slot == nil || !s.holders.has(e) {
		return nil
	}
	e.slot.queue = slices.DeleteFunc(e.slot.queue, func(w *waiter) bool {
		if d.reason(w.lease, w.patient) == nil {
			return false
		}
		answered = append(answered, w)
		return true
	})
	if len(e.slot.queue) > maxWaiters {
		answered = append(answered, e.slot.queue[maxWaiters:]...)
		clear(e.slot.queue[maxWaiters:])
		e.slot.queue = e.slot.queue[:maxWaiters]
	}
	return answered
}

// hand makes next the holder of what holder had.
func (s *gateShard) hand(holder, next *Lease) {
	s.clear(holder)
	next.slot, holder.slot = holder.slot, nil
	next.slot.ending, next.slot.bypassed = nil, false
	next.standing.meet() // those who are left in the queue
	if holder.standing.refused() {
		next.standing.refuse()
	}
	s.holders.remove(holder)
	s.holders.add(next)
}

// pass gives the key of e to the first of its queue.
func (s *gateShard) pass(e *Lease) {
	if e.slot == nil || len(e.slot.queue) == 0 {
		s.clear(e)
		s.holders.remove(e)
		return
	}
	next := e.slot.queue[0]
	e.slot.queue = slices.Delete(e.slot.queue, 0, 1)
	s.hand(e, next.lease)
	close(next.ready)
}
