// Package local is the table of the keys that one process holds, claims or waits for. A
// duplicate in the same process costs no round trip, and no two callers of a process claim a
// key at once: from the answers alone, their Locker could not distinguish the two claims. A
// ticket is an exception: its bearer asks the store past the table ([Holding.Admit]).
package local

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// Lease has the methods of a lease for its [Table], which calls them with the shard of its key locked, except for Ring.
type Lease interface {
	Owner() string                // for operators
	SameRequest(other Lease) bool // false if the fingerprints differ
	Ring()                        // is called when an alarm is due, on its own goroutine
}

// Table maps keys to the leases that have them. It is safe for concurrent use.
type Table struct {
	seed   maphash.Seed
	shards [shards]shard
}

const shards = 64

type shard struct {
	mu      sync.Mutex
	holders map[string]*Holding
	watches map[string][]chan struct{} // see Table.WatchFreed

	alarms   clock.Queue[*Holding]
	nextLook clock.Moment // for new leases, which are not queued; Never if there are none
}

// New returns an empty table.
func New() *Table {
	t := &Table{seed: maphash.MakeSeed()}
	for i := range t.shards {
		s := &t.shards[i]
		s.holders, s.watches = make(map[string]*Holding), make(map[string][]chan struct{})
		s.alarms, s.nextLook = clock.NewQueue[*Holding](s.ring), clock.Never
	}
	return t
}

func (t *Table) shardAt(key string) *shard { return &t.shards[maphash.String(t.seed, key)%shards] }

// Holding is the state of a lease in a [Table]. It is part of the lease, and locked with the
// shard of its key.
type Holding struct {
	clock.Schedule // of the next alarm

	state   atomic.Uint32 // written with the shard locked, and read without
	ticket  bool          // name is not the key, but the key, ticketMark and more
	shard   *shard
	lease   Lease
	name    string // under which the table has it
	slot    *slot  // nil if the lease does not have the key, or the slot would be empty
	confirm func() // asks the store to confirm the settle of the lease; nil until its work is over
}

// The states of a lease as far as other callers for its key see them. All are listed beside lock.Lease.
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

// Prepare makes h the part of lease in t, for key. It comes before all other calls with h.
func (t *Table) Prepare(h *Holding, lease Lease, key string) {
	h.lease, h.name, h.shard = lease, key, t.shardAt(key)
}

// Entrance is the result of [Holding.Enter].
type Entrance struct {
	Open     bool    // the lease has the key now
	Mismatch bool    // another lease has it, for a different request
	Waiter   *Waiter // nil if the lease does not wait
	Confirm  func()  // asks the store to confirm the settle of the holder; nil if its work is not over
	Owner    string  // of the holder, if the holder is another lease
}

// Enter gives h its key. If another lease has the key, h is queued behind it if h is patient, or
// if it is not decided whether the key is held: a refusal would then lock the process out because
// of its own unanswered call.
func (h *Holding) Enter(patient bool) Entrance {
	s := h.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	holder, taken := s.holders[h.name]
	if !taken {
		s.holders[h.name] = h
		return Entrance{Open: true}
	}
	found := Entrance{Owner: holder.lease.Owner(), Confirm: holder.confirm}
	switch {
	case holder.pending(): // the budget of its claim bounds the wait, so nothing bounds the queue
		found.Waiter = enqueue(h, holder, patient)
		if !patient || holder.waiting() > maxWaiters {
			holder.slot.triggerClaim()
		}
	case holder.Granted() && !h.lease.SameRequest(holder.lease):
		return Entrance{Mismatch: true, Owner: found.Owner}
	case (patient || holder.undecided()) && holder.waiting() < maxWaiters:
		found.Waiter = enqueue(h, holder, patient)
	}
	return found
}

// TryEnter gives h its key if no lease has the key. Otherwise it returns the state of the key, and
// the owner of the lease that has it.
func (h *Holding) TryEnter() (taken Taken, owner string) {
	s := h.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if taken = s.taken(h.name); taken != NotTaken {
		return taken, s.holders[h.name].lease.Owner()
	}
	s.holders[h.name] = h
	return NotTaken, ""
}

const ticketMark = "\x00"

// Admit adds h, whose key the store has granted by a ticket, past the callers that claim the key
// in this process. If there is such a caller, h gets a name of its own: the store will refuse the
// caller's claim, and all later ones.
func (h *Holding) Admit(token string) {
	s := h.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.holders[h.name]; taken {
		h.name, h.ticket = h.name+ticketMark+token, true
	}
	s.holders[h.name] = h
}

// Resumed returns the owner of a lease that has the key of h by a ticket, if there is one in addition to h.
func (h *Holding) Resumed() (owner string, is bool) {
	s := h.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, other := range s.holders {
		if other.ticket && strings.HasPrefix(name, h.name+ticketMark) {
			return other.lease.Owner(), true
		}
	}
	return "", false
}

// Grant notes the grant of h, whose first alarm is due at due. decide returns the decision for
// the callers behind h, if there are any: h holds the key.
func (h *Holding) Grant(due clock.Moment, decide func() Decision) {
	s := h.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	h.state.Store(granted)
	if h.Due = due; due < s.nextLook {
		s.nextLook = due
		s.alarms.Arm(due)
	}
	if h.slot != nil {
		h.answer(decide())
	}
}

// Bypass notes that the work of h runs although its claim was not granted. decide is as for Grant.
func (h *Holding) Bypass(decide func() Decision) {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	h.state.Store(unprotected)
	if h.slot != nil {
		h.answer(decide())
	}
}

// MarkSettling notes that the work of h is over, and its settle lacks the store's answer. confirm
// asks the store for it.
func (h *Holding) MarkSettling(confirm func()) {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	h.confirm = confirm
}

// Leave frees the key of h if h has it, and drops its alarm. It is called at the loss of a lease and again at
// its end. decide, if it is not nil, returns the decision for the callers behind h, if there are any.
func (h *Holding) Leave(decide func() Decision) {
	s := h.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Place > 0 {
		s.alarms.Drop(h)
	}
	if s.holders[h.name] != h {
		return
	}
	sl := h.slot
	if sl != nil && decide != nil {
		h.answer(decide())
	}
	h.slot = nil
	if sl != nil && sl.queue.Len() > 0 {
		s.holders[h.name] = sl.pass()
		return
	}
	delete(s.holders, h.name)
	if watches := s.watches[h.name]; len(watches) > 0 && !h.pending() { // else it has freed no key, and may be the watcher's own
		for _, c := range watches {
			select {
			case c <- struct{}{}:
			default: // it has a value already
			}
		}
	}
}

// WatchFreed returns a channel that has a value after a holder of one of keys in this process has freed it,
// until stop is called.
func (t *Table) WatchFreed(keys []string) (freed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	each := func(change func(watches []chan struct{}) []chan struct{}) {
		for _, key := range keys {
			s := t.shardAt(key)
			s.mu.Lock()
			if s.watches[key] = change(s.watches[key]); len(s.watches[key]) == 0 {
				delete(s.watches, key)
			}
			s.mu.Unlock()
		}
	}
	each(func(watches []chan struct{}) []chan struct{} { return append(watches, c) })
	return c, func() {
		each(func(watches []chan struct{}) []chan struct{} {
			return slices.DeleteFunc(watches, func(other chan struct{}) bool { return other == c })
		})
	}
}

// Key is a key in a [Table].
type Key struct {
	Holder   Lease
	Waiting  int  // callers in its queue
	Settling bool // the work of the holder is over, and the store has not confirmed the settle
}

// Keys returns all keys.
func (t *Table) Keys() (all []Key) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, h := range s.holders {
			all = append(all, Key{h.lease, h.waiting(), h.confirm != nil})
		}
		s.mu.Unlock()
	}
	return all
}

// Taken is the state of a key in this process.
type Taken uint8

// The states of a key.
const (
	NotTaken       Taken = iota // no lease has it
	TakenUndecided              // see [Holding.undecided]
	TakenHeld
)

// Taken returns the state of key in this process.
func (t *Table) Taken(key string) Taken {
	s := t.shardAt(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken(key)
}

func (s *shard) taken(key string) Taken {
	switch holder, taken := s.holders[key]; {
	case !taken:
		return NotTaken
	case holder.undecided():
		return TakenUndecided
	default:
		return TakenHeld
	}
}

// ring rings the leases that are due, for example when a renewal is. Most leases end long before. A timer for
// each would be the largest part of their cost, and even a place in a queue costs much. So all share one timer,
// and a new lease is in no queue until a look through all leases, which comes before its first alarm.
func (s *shard) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := clock.Now()
	s.alarms.Fired()
	if at >= s.nextLook {
		s.nextLook = clock.Never
		for _, h := range s.holders {
			if h.Granted() && h.Place == 0 {
				s.alarms.Put(h, h.Due)
			}
		}
	}
	for at >= s.alarms.First() {
		go s.alarms.Pop().lease.Ring()
	}
	s.alarms.Arm(min(s.alarms.First(), s.nextLook))
}

// SetAlarm rings h at due, unless h has left its key.
func (h *Holding) SetAlarm(due clock.Moment) {
	s := h.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders[h.name] == h {
		s.alarms.Put(h, due)
		s.alarms.Arm(due)
	}
}
