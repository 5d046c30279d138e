package local

import (
	"container/list"
	"sync/atomic"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// Holding is the state of a lease in a [Table]. It is part of the lease, and locked with the
// shard of its key, except as the fields say.
type Holding struct {
	clock.Schedule // of the next alarm; also written before the lease is granted, without the lock

	claimState // needs no lock
	lease      Lease
	shard      uint8
	slot       *slot // nil if the lease does not have the key, or the slot would be empty
}

// claimState says whether the claim of a lease was granted, whether another call has contended for
// its key, and whether its work runs although the claim was not granted. All are in one word: if a
// grant and a call that contends race, at least one of the two sees the other.
type claimState struct{ bits atomic.Uint32 }

const (
	granted = 1 << iota
	contended
	bypassed
)

// Granted reports whether the claim was granted.
func (s *claimState) Granted() bool { return s.bits.Load()&granted != 0 }

// Contended reports whether another call has contended for the key.
func (s *claimState) Contended() bool { return s.bits.Load()&contended != 0 }

// Bypassed reports whether the work runs unprotected.
func (s *claimState) Bypassed() bool { return s.bits.Load()&bypassed != 0 }

// Grant notes the grant, and reports whether another call has contended for the key before.
func (s *claimState) Grant() (wasContended bool) { return s.bits.Or(granted)&contended != 0 }

func (s *claimState) bypass() { s.bits.Or(bypassed) }

// contend notes that another call contends for the key, and reports whether the claim was granted
// before.
func (s *claimState) contend() (wasGranted bool) { return s.bits.Or(contended)&granted != 0 }

// pending reports whether the claim may still be granted or refused. The shard is locked.
func (s *claimState) pending() bool { return !s.Granted() && !s.Bypassed() }

// slot holds the waiters and flags of a pending or granted key. It belongs to the lease
// that has the key, and is made when it is first needed.
type slot struct {
	confirmEnd func()    // asks the store again; nil until the work of the holder is over
	queue      list.List // of waiters, in the order of arrival
	finds      int       // the number of claims that found a holder while there was a queue

	elsewhere bool // the holder that the latest of these claims found is in another process

	unserved Decision // of the latest poll, nil if the store served it

	// trigger is not nil once a claim has found a holder in another process: the lease claims
	// the key again from time to time, and at once if there is a value.
	trigger chan struct{}
}

// ending reports whether the work is over, and the store has not confirmed the end. The shard is
// locked.
func (h *Holding) ending() bool { return h.slot != nil && h.slot.confirmEnd != nil }

func (h *Holding) needSlot() *slot {
	if h.slot == nil {
		h.slot = new(slot)
	}
	return h.slot
}

// triggerClaim makes the lease that waits for another process claim the key soon.
func (sl *slot) triggerClaim() {
	select {
	case sl.trigger <- struct{}{}:
	default: // the trigger has a value, or the claim is pending
	}
}

// remove takes w from the queue, in constant time: tens of thousands can leave at once.
func (sl *slot) remove(w *Waiter) {
	sl.queue.Remove(w.place)
	w.place = nil
}
