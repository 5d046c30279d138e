package lock

import (
	"container/list"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// localEntry is what the local keys have of a lease: its key's place among those that this
// process holds or claims, and among the alarms. It is locked with the shard of its key, all of
// it, except what is written before the local keys have the lease.
type localEntry struct {
	clock.Schedule // of what is next due; set before the lease is granted, too

	hash uint64 // of its key
	slot *slot  // while it has the key
}

// holder is a lease as the local keys see it. It gives the lease no methods.
type holder Lease

// When implements clock.Scheduled.
func (h *holder) When() *clock.Schedule { return &h.local.Schedule }

// shard is the part of the local keys that its key is in.
func (e *Lease) shard() *keyShard { return e.locker.core.keys.shard(e.local.hash) }

// slot is what may be to know of a key that is pending or granted. It belongs to
// the lease that has the key, once there is something, and is locked with the
// shard of its key.
type slot struct {
	confirmEnd func()    // set when the holder's work is over and only the store's word is missing: asks for it again
	queue      list.List // of waiters, in the order of arrival
	finds      int       // how often the key was found to have a holder while there was a queue

	unserved *decision // of the latest poll, if the store did not serve it

	// asked is not nil once another process was found to have the key: the lease
	// claims it again from time to time, and at once if something is sent here.
	asked chan struct{}
}

func (e *Lease) needSlot() *slot {
	if e.local.slot == nil {
		e.local.slot = new(slot)
	}
	return e.local.slot
}
