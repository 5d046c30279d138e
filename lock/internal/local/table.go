// Package local is the table of the keys that one process holds, claims or waits for. A
// duplicate in the same process costs no round trip, and no two callers of a process claim a
// key at once: from the answers alone, their Locker could not distinguish the two claims. A
// ticket is an exception: its bearer asks the store past the table ([Table.Admit]).
package local

import (
	"hash/maphash"
	"iter"
	"sync"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// Holder is a lease as a [Table] sees it. Its methods may be called with the shard of its key
// locked, except for Ring.
type Holder[H any] interface {
	comparable
	clock.Scheduled

	Entry() *Entry[H]
	Key() string
	Owner() string            // for operators
	SameRequest(other H) bool // false if the fingerprints differ
	Settles() bool            // whether the lease ends with a settle; see Table.MarkEnding
	Ring()                    // is called when an alarm is due, on its own goroutine
}

// Table maps keys to the leases that have them. It is safe for concurrent use.
type Table[H Holder[H]] struct {
	seed   maphash.Seed
	shards [shards]shard[H]
}

const shards = 64

type shard[H Holder[H]] struct {
	mu       sync.Mutex
	holders  map[string]H   // of the keys that are pending or granted in this process
	admitted map[H]struct{} // see Table.Admit
	alarms   alarms[H]

	watches map[string][]chan struct{} // see Table.WatchFreed
}

// New returns an empty table.
func New[H Holder[H]]() *Table[H] {
	t := &Table[H]{seed: maphash.MakeSeed()}
	for i := range t.shards {
		s := &t.shards[i]
		s.holders = make(map[string]H)
		s.alarms.init(s.ring)
	}
	return t
}

// Prepare sets the shard of h. It comes before all other calls with h.
func (t *Table[H]) Prepare(h H) {
	h.Entry().shard = uint8(maphash.String(t.seed, h.Key()) % shards)
}

// shardOf returns the shard of h's key.
func (t *Table[H]) shardOf(h H) *shard[H] { return &t.shards[h.Entry().shard] }

// Entrance is the result of [Table.Enter].
type Entrance[H any] struct {
	Open       bool       // the lease has the key now
	Mismatch   bool       // another lease has it, for a different request
	Waiter     *Waiter[H] // nil if the lease does not wait
	ConfirmEnd func()     // asks the store to confirm the end of the holder; nil if its work is not over
	Owner      string     // of the holder, if the holder is another lease
}

// Enter gives h its key. If another lease has the key, h is queued behind it if h is patient,
// or if it is not certain that the key is held. It is not certain while the claim of the other
// lease is pending. It is not certain either after the work of the other lease is over: a refusal
// would then lock the process out because of its own unanswered call.
func (t *Table[H]) Enter(h H, patient bool) Entrance[H] {
	s, key := t.shardOf(h), h.Key()
	s.mu.Lock()
	defer s.mu.Unlock()
	holder, taken := s.holders[key]
	if !taken {
		s.holders[key] = h
		return Entrance[H]{Open: true}
	}
	e := holder.Entry()
	if wasGranted := e.contend(); !wasGranted && e.pending() {
		w := enqueue(h, holder, patient)
		if !patient || e.slot.queue.Len() > maxWaiters {
			e.slot.triggerClaim()
		}
		return Entrance[H]{Waiter: w, Owner: holder.Owner()}
	}
	sl := e.slot
	if sl == nil {
		sl = new(slot[H])
	}
	freeing := sl.confirmEnd != nil && !holder.Settles()
	if !e.Bypassed() && !freeing && !h.SameRequest(holder) {
		return Entrance[H]{Mismatch: true, Owner: holder.Owner()}
	}
	if !patient && sl.confirmEnd == nil || sl.queue.Len() >= maxWaiters {
		return Entrance[H]{ConfirmEnd: sl.confirmEnd, Owner: holder.Owner()}
	}
	return Entrance[H]{Waiter: enqueue(h, holder, patient), ConfirmEnd: sl.confirmEnd, Owner: holder.Owner()}
}

// TryEnter gives h its key if no lease has the key. Otherwise it returns the state of the key, and
// the owner of the lease that has it. It does not mark the key as contended.
func (t *Table[H]) TryEnter(h H) (taken Taken, owner string) {
	s, key := t.shardOf(h), h.Key()
	s.mu.Lock()
	defer s.mu.Unlock()
	if taken = s.taken(key); taken != NotTaken {
		return taken, s.holders[key].Owner()
	}
	s.holders[key] = h
	return NotTaken, ""
}

// MarkEnding notes that the work of h is over. confirm asks the store to confirm the end.
func (t *Table[H]) MarkEnding(h H, confirm func()) {
	s := t.shardOf(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has(h) || s.hasAdmitted(h) {
		h.Entry().needSlot().confirmEnd = confirm
	}
}

// has reports whether h has its key.
func (s *shard[H]) has(h H) bool {
	holder, taken := s.holders[h.Key()]
	return taken && holder == h
}

// Leave frees the key of h if h has it. It may be called again: at the loss of a lease and
// at its end. There is no renewal after the first call.
func (t *Table[H]) Leave(h H) { t.LeaveWith(h, nil) }

// LeaveWith is Leave after a claim that ended. decide returns the decision for callers behind
// the claim. It is called if there may be such callers.
func (t *Table[H]) LeaveWith(h H, decide func() Decision[H]) {
	s := t.shardOf(h)
	s.mu.Lock()
	s.alarms.Drop(h)
	var d Decision[H]
	var answered []*Waiter[H]
	switch {
	case s.has(h):
		if decide != nil && h.Entry().slot != nil {
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
func (s *shard[H]) pass(h H) {
	if s.promote(h) {
		return
	}
	sl := h.Entry().slot
	if sl == nil || sl.queue.Len() == 0 {
		s.free(h.Key())
		return
	}
	next := waiterAt[H](sl.queue.Front())
	next.foundHolder = next.patient && next.knowsHolder(sl)
	next.foundElsewhere = next.foundHolder && sl.elsewhere
	sl.remove(next)
	s.hand(h, next.lease)
	close(next.ready)
}

// hand gives the key of holder to next.
func (s *shard[H]) hand(holder, next H) {
	from, to := holder.Entry(), next.Entry()
	to.slot, from.slot = from.slot, nil
	to.slot.confirmEnd, to.slot.trigger, to.slot.unserved = nil, nil, nil
	to.contend() // by the rest of the queue
	s.holders[next.Key()] = next
}

// Bypass notes that the work of h runs although its claim was not granted.
func (t *Table[H]) Bypass(h H) {
	s := t.shardOf(h)
	s.mu.Lock()
	h.Entry().bypass()
	s.mu.Unlock()
}

// Update calls change. No caller looks at h meanwhile.
func (t *Table[H]) Update(h H, change func()) {
	s := t.shardOf(h)
	s.mu.Lock()
	change()
	s.mu.Unlock()
}

// Key is a key in a [Table].
type Key[H any] struct {
	Holder  H
	Waiting int  // callers in its queue
	Ending  bool // the work of the holder is over, and the store has not confirmed the end
}

// Keys yields all keys, without a lock.
func (t *Table[H]) Keys() iter.Seq[Key[H]] {
	return func(yield func(Key[H]) bool) {
		for i := range t.shards {
			for _, k := range t.shards[i].keys() {
				if !yield(k) {
					return
				}
			}
		}
	}
}

func (s *shard[H]) keys() []Key[H] {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Key[H], 0, len(s.holders)+len(s.admitted))
	for h := range s.leases() {
		k := Key[H]{Holder: h}
		if sl := h.Entry().slot; sl != nil {
			k.Waiting, k.Ending = sl.queue.Len(), sl.confirmEnd != nil
		}
		all = append(all, k)
	}
	return all
}
