package local

import (
	"container/list"
	"sync/atomic"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// Holding is the state of a lease in a [Table]. It is part of the lease, and locked with the
// shard of its key.
type Holding struct {
	clock.Schedule // of the next alarm

	state atomic.Uint32 // written with the shard locked, and read without
	shard *shard
	lease Lease
	name  string // under which the table has it
	slot  *slot  // nil if the lease does not have the key, or the slot would be empty

	// confirm asks the store to confirm the settle of the lease; nil until its work is over.
	confirm func()
}

// The states of a lease.
const (
	pending uint32 = iota // its claim may still be granted or refused
	granted
	unprotected // its work runs although the claim was not granted
)

// Granted reports whether the claim was granted.
func (h *Holding) Granted() bool { return h.state.Load() == granted }

// Unprotected reports whether the work runs although the claim was not granted.
func (h *Holding) Unprotected() bool { return h.state.Load() == unprotected }

func (h *Holding) pending() bool { return h.state.Load() == pending }

// undecided reports whether h is pending, or its work is over and the store has not confirmed the
// settle. Both end within a budget, or soon after the end of an outage.
func (h *Holding) undecided() bool { return h.pending() || h.confirm != nil }

// slot has the callers that wait for a key. It belongs to the lease that has the key, and is made
// when it is first needed.
type slot struct {
	queue list.List // of waiters, in the order of arrival
	finds int       // the number of claims that found a holder while there was a queue

	elsewhere bool // the holder that the latest of these claims found is in another process

	unserved Decision // of the latest poll, nil if the store served it

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
