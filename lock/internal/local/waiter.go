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
	patient bool          // it waits for a holder, and not only for a pending claim

	// Written before ready is closed.
	foundHolder    bool     // the key had a holder before the lease got it
	foundElsewhere bool     // that holder is in another process, and may not have ended
	decided        Decision // nil if the lease has the key

	// Written when the waiter leaves the queue by itself.
	unserved Decision // of the slot
	usurped  *Holding // the lease from which the waiter took the key
	settles  bool     // the lease in usurped ends with a settle
}

// maxWaiters bounds the queue behind a holder, here or in another process. Any client can
// make a waiter, which is a goroutine. The queue behind a pending claim has no bound, because the
// budget bounds the wait in it.
const maxWaiters = 64

// Ready is closed when the lease has the key, or there is a decision.
func (w *Waiter) Ready() <-chan struct{} { return w.ready }

// Lease returns the lease that waits.
func (w *Waiter) Lease() Lease { return w.lease.lease }

// FoundHolder reports whether the key had a holder before the lease got it. It may be called once w
// is ready.
func (w *Waiter) FoundHolder() bool { return w.foundHolder }

// FoundElsewhere reports whether that holder is in another process, as far as is known. It may be called
// once w is ready.
func (w *Waiter) FoundElsewhere() bool { return w.foundElsewhere }

// Decided returns the decision, nil if the lease has the key. It may be called once w is
// ready.
func (w *Waiter) Decided() Decision { return w.decided }

// Unserved returns the decision of the latest poll if the store did not serve it, else nil.
// It may be called once the wait was stopped.
func (w *Waiter) Unserved() Decision { return w.unserved }

// Usurped returns the lease from which the waiter took the key, after [Usurped], and whether this
// lease ends with a settle.
func (w *Waiter) Usurped() (h Lease, settles bool) { return w.usurped.lease, w.settles }

// knowsHolder reports whether the key had a holder when w was queued, or a claim has found one since.
func (w *Waiter) knowsHolder(sl *slot) bool { return w.held || w.finds != sl.finds }

func waiterAt(place *list.Element) *Waiter {
	return place.Value.(*Waiter) //nolint:errcheck,forcetypeassert // a queue has no other values
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

// Allowed says how a waiter may go on after its time is over.
type Allowed uint8

const (
	// AwaitAnswer lets the waiter wait for the answer to a pending claim, and no longer for
	// holders.
	AwaitAnswer Allowed = 1 << iota
	// Usurp lets the waiter take the key from a holder whose work is over, although the store has
	// not confirmed the end.
	Usurp
)

// Stopped is the result of [Table.StopWaiting].
type Stopped uint8

const (
	// StillWaiting says that the wait goes on, for the answer to a claim.
	StillWaiting Stopped = iota
	// FoundHeld says that another caller holds the key.
	FoundHeld
	// FoundPending says that the claim that the waiter is behind is still unanswered.
	FoundPending
	// FoundEnding says that the work of the holder is over, and the store has not confirmed the
	// end.
	FoundEnding
	// Usurped says the same as FoundEnding, and that the waiter has taken the key.
	Usurped
	// FoundGiven says that the waiter had the key already.
	FoundGiven
	// FoundDecided says that there is a decision, or that it comes at any moment.
	FoundDecided
)

// StopWaiting ends the wait of w.
func (t *Table) StopWaiting(w *Waiter, allowed Allowed) Stopped {
	s := t.shardOf(w.lease)
	s.mu.Lock()
	defer s.mu.Unlock()
	holder, taken := s.holders[w.lease.lease.Key()]
	if taken && holder == w.lease {
		return FoundGiven
	}
	if w.place == nil {
		return FoundDecided
	}
	sl := holder.slot
	pending := holder.pending() && !w.knowsHolder(sl)
	if allowed&AwaitAnswer != 0 && (pending || holder.pending() && sl.trigger != nil) {
		w.patient = false
		sl.triggerClaim()
		return StillWaiting
	}
	sl.remove(w)
	w.unserved = sl.unserved
	switch {
	case pending:
		return FoundPending
	case sl.confirmEnd == nil:
		return FoundHeld
	case allowed&Usurp != 0:
		s.alarms.keep(holder) // it is renewed until the store has confirmed its end
		s.hand(holder, w.lease)
		w.usurped, w.settles = holder, holder.lease.Settles()
		return Usurped
	default:
		return FoundEnding
	}
}

// CancelWait ends the wait of w, which no longer wants the key. If w has the key, it goes
// to the next waiter.
func (t *Table) CancelWait(w *Waiter) Stopped {
	stopped := t.StopWaiting(w, 0)
	if stopped == FoundGiven {
		t.Leave(w.lease)
	}
	return stopped
}
