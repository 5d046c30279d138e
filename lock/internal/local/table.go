// Package local is the table of the keys that one process holds, claims or waits for. A
// duplicate in the same process costs no round trip, and no two callers of a process claim a
// key at once: from the answers alone, their Locker could not distinguish the two claims. A
// ticket is an exception: its bearer asks the store past the table ([Table.Admit]).
package local

import (
	"hash/maphash"
	"iter"
	"sync"
)

// Lease is what a [Table] asks a lease. Its methods may be called with the shard of its key locked,
// except for Ring.
type Lease interface {
	Key() string
	Owner() string                // for operators
	SameRequest(other Lease) bool // false if the fingerprints differ
	Settles() bool                // whether the lease ends with a settle; see Table.MarkEnding
	Ring()                        // is called when an alarm is due, on its own goroutine
}

// Table maps keys to the leases that have them. It is safe for concurrent use.
type Table struct {
	seed   maphash.Seed
	shards [shards]shard
}

const shards = 64

type shard struct {
	mu       sync.Mutex
	holders  map[string]*Holding   // of the keys that are pending or granted in this process
	admitted map[*Holding]struct{} // see Table.Admit
	alarms   alarms

	watches map[string][]chan struct{} // see Table.WatchFreed
}

// New returns an empty table.
func New() *Table {
	t := &Table{seed: maphash.MakeSeed()}
	for i := range t.shards {
		s := &t.shards[i]
		s.holders = make(map[string]*Holding)
		s.alarms.init(s.ring)
	}
	return t
}

// Prepare makes h the part of lease in t. It comes before all other calls with h.
func (t *Table) Prepare(h *Holding, lease Lease) {
	h.lease = lease
	h.shard = uint8(maphash.String(t.seed, lease.Key()) % shards)
}

// shardOf returns the shard of h's key.
func (t *Table) shardOf(h *Holding) *shard { return &t.shards[h.shard] }

// Entrance is the result of [Table.Enter].
type Entrance struct {
	Open       bool    // the lease has the key now
	Mismatch   bool    // another lease has it, for a different request
	Waiter     *Waiter // nil if the lease does not wait
	ConfirmEnd func()  // asks the store to confirm the end of the holder; nil if its work is not over
	Owner      string  // of the holder, if the holder is another lease
}

// Enter gives h its key. If another lease has the key, h is queued behind it if h is patient,
// or if it is not certain that the key is held. It is not certain while the claim of the other
// lease is pending. It is not certain either after the work of the other lease is over: a refusal
// would then lock the process out because of its own unanswered call.
func (t *Table) Enter(h *Holding, patient bool) Entrance {
	s, key := t.shardOf(h), h.lease.Key()
	s.mu.Lock()
	defer s.mu.Unlock()
	holder, taken := s.holders[key]
	if !taken {
		s.holders[key] = h
		return Entrance{Open: true}
	}
	if wasGranted := holder.contend(); !wasGranted && holder.pending() {
		w := enqueue(h, holder, patient)
		if !patient || holder.slot.queue.Len() > maxWaiters {
			holder.slot.triggerClaim()
		}
		return Entrance{Waiter: w, Owner: holder.lease.Owner()}
	}
	sl := holder.slot
	if sl == nil {
		sl = new(slot)
	}
	freeing := sl.confirmEnd != nil && !holder.lease.Settles()
	if !holder.Bypassed() && !freeing && !h.lease.SameRequest(holder.lease) {
		return Entrance{Mismatch: true, Owner: holder.lease.Owner()}
	}
	if !patient && sl.confirmEnd == nil || sl.queue.Len() >= maxWaiters {
		return Entrance{ConfirmEnd: sl.confirmEnd, Owner: holder.lease.Owner()}
	}
	return Entrance{Waiter: enqueue(h, holder, patient), ConfirmEnd: sl.confirmEnd, Owner: holder.lease.Owner()}
}

// TryEnter gives h its key if no lease has the key. Otherwise it returns the state of the key, and
// the owner of the lease that has it. It does not mark the key as contended.
func (t *Table) TryEnter(h *Holding) (taken Taken, owner string) {
	s, key := t.shardOf(h), h.lease.Key()
	s.mu.Lock()
	defer s.mu.Unlock()
	if taken = s.taken(key); taken != NotTaken {
		return taken, s.holders[key].lease.Owner()
	}
	s.holders[key] = h
	return NotTaken, ""
}

// MarkEnding notes that the work of h is over. confirm asks the store to confirm the end.
func (t *Table) MarkEnding(h *Holding, confirm func()) {
	s := t.shardOf(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has(h) || s.hasAdmitted(h) {
		h.needSlot().confirmEnd = confirm
	}
}

// has reports whether h has its key.
func (s *shard) has(h *Holding) bool {
	holder, taken := s.holders[h.lease.Key()]
	return taken && holder == h
}

// Leave frees the key of h if h has it. It may be called again: at the loss of a lease and
// at its end. There is no renewal after the first call.
func (t *Table) Leave(h *Holding) { t.LeaveWith(h, nil) }

// LeaveWith is Leave after a claim that ended. decide returns the decision for callers behind
// the claim. It is called if there may be such callers.
func (t *Table) LeaveWith(h *Holding, decide func() Decision) {
	s := t.shardOf(h)
	s.mu.Lock()
	s.alarms.Drop(h)
	var d Decision
	var answered []*Waiter
	switch {
	case s.has(h):
		if decide != nil && h.slot != nil {
			d = decide()
			answered = s.takeAnswered(h, d)
		}
		s.pass(h)
	default:
		s.leaveAdmitted(h)
	}
	s.mu.Unlock()
	wake(d, answered)
}

// pass gives the key of h to an admitted lease, or else to the first of its queue.
func (s *shard) pass(h *Holding) {
	if s.promote(h) {
		return
	}
	sl := h.slot
	if sl == nil || sl.queue.Len() == 0 {
		s.free(h.lease.Key())
		return
	}
	next := waiterAt(sl.queue.Front())
	next.foundHolder = next.patient && next.knowsHolder(sl)
	next.foundElsewhere = next.foundHolder && sl.elsewhere
	sl.remove(next)
	s.hand(h, next.lease)
	close(next.ready)
}

// hand gives the key of holder to next.
func (s *shard) hand(holder, next *Holding) {
	next.slot, holder.slot = holder.slot, nil
	next.slot.confirmEnd, next.slot.trigger, next.slot.unserved = nil, nil, nil
	next.contend() // by the rest of the queue
	s.holders[next.lease.Key()] = next
}

// Bypass notes that the work of h runs although its claim was not granted.
func (t *Table) Bypass(h *Holding) {
	s := t.shardOf(h)
	s.mu.Lock()
	h.bypass()
	s.mu.Unlock()
}

// Update calls change. No caller looks at h meanwhile.
func (t *Table) Update(h *Holding, change func()) {
	s := t.shardOf(h)
	s.mu.Lock()
	change()
	s.mu.Unlock()
}

// Key is a key in a [Table].
type Key struct {
	Holder  Lease
	Waiting int  // callers in its queue
	Ending  bool // the work of the holder is over, and the store has not confirmed the end
}

// Keys yields all keys, without a lock.
func (t *Table) Keys() iter.Seq[Key] {
	return func(yield func(Key) bool) {
		for i := range t.shards {
			for _, k := range t.shards[i].keys() {
				if !yield(k) {
					return
				}
			}
		}
	}
}

func (s *shard) keys() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Key, 0, len(s.holders)+len(s.admitted))
	for h := range s.leases() {
		k := Key{Holder: h.lease}
		if sl := h.slot; sl != nil {
			k.Waiting, k.Ending = sl.queue.Len(), sl.confirmEnd != nil
		}
		all = append(all, k)
	}
	return all
}
