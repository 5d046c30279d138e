package lock

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
)

// gate knows which keys this process has pending or granted, so that a
// duplicate in the same process costs no round trip, and so that of two claims
// of one process for one key never both are on their way: a locker that had
// both could not tell, from the answers alone, its living claim from a dead one.
type gate struct {
	seed   maphash.Seed
	shards [gateShards]gateShard
}

const gateShards = 64

type gateShard struct {
	mu      sync.Mutex
	holders holders               // of the keys that are pending or granted in this process
	busy    atomic.Pointer[Lease] // the holder that somebody was refused for last; see refused.go
	agenda  agenda
}

// slot is what may be to know of a key that is pending or granted. It belongs to
// the lease that has the key, once there is something, and is locked with the
// gate's shard.
type slot struct {
	ending func()    // set when the holder's work is over and only the store's word is missing: asks for it again
	queue  []*waiter // in the order of arrival
}

func (e *Lease) needSlot() *slot {
	if e.slot == nil {
		e.slot = new(slot)
	}
	return e.slot
}

// waiter waits for a slot that another lease has.
type waiter struct {
	lease *Lease
	ready chan struct{} // closed when the slot is the waiter's
}

// maxWaiters bounds the queue of one key. A waiter is a goroutine that anybody
// can make.
const maxWaiters = 64

func newGate() *gate {
	g := &gate{seed: maphash.MakeSeed()}
	for i := range g.shards {
		s := &g.shards[i]
		s.holders.init()
		s.agenda.init(s.renew)
	}
	return g
}

func (g *gate) hash(key string) uint64 { return maphash.String(g.seed, key) }

// shard is that of the keys with this hash.
func (g *gate) shard(hash uint64) *gateShard { return &g.shards[hash%gateShards] }

// entrance is what enter found.
type entrance struct {
	open     bool    // the key is the lease's now
	mismatch bool    // somebody else has it, for a different request
	waiter   *waiter // nil if there is no waiting
	ending   func()  // not nil if the holder is done: asks the store to confirm that now
	owner    string  // the holder's, if that is another
}

// enter takes e's key for e. If another lease has it, e is queued behind it, if
// patient says so or if that lease is done: refusing it then would lock the
// process out by its own unanswered call.
func (*gate) enter(e *Lease, patient bool) entrance {
	s := e.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	holder := s.holders.find(e.key, e.hash)
	if holder == nil {
		s.holders.add(e)
		return entrance{open: true}
	}
	var sl slot
	if holder.slot != nil {
		sl = *holder.slot
	}
	freeing := sl.ending != nil && !holder.end.settles
	if holder.granted.Load() && !freeing && !sameRequest(e.fingerprint(), holder.fingerprint()) {
		return entrance{mismatch: true, owner: holder.owner()}
	}
	if !patient && sl.ending == nil || len(sl.queue) >= maxWaiters {
		if sl.ending == nil {
			s.busy.Store(holder)
		}
		return entrance{ending: sl.ending, owner: holder.owner()}
	}
	w := &waiter{lease: e, ready: make(chan struct{})}
	behind := holder.needSlot()
	behind.queue = append(behind.queue, w)
	return entrance{waiter: w, ending: sl.ending, owner: holder.owner()}
}

// sameRequest compares fingerprints. Work that has none is not told apart.
func sameRequest(a, b []byte) bool {
	return len(a) == 0 || len(b) == 0 || bytes.Equal(a, b)
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
	sl := holder.slot
	i := slices.Index(sl.queue, w)
	sl.queue = slices.Delete(sl.queue, i, i+1)
	switch {
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
	quitHeld    quitted = iota // somebody holds the key
	quitEnding                 // its holder only waits for the store's word
	quitUsurped                // so did its holder, and it is the waiter's now
	quitGiven                  // it was the waiter's already
)

// desert ends the wait of w without interest in the key: if w was given it, it
// goes on to the next.
func (g *gate) desert(w *waiter) {
	if g.quit(w, false) == quitGiven {
		g.leave(w.lease)
	}
}

// hand makes next the holder of what holder had.
func (s *gateShard) hand(holder, next *Lease) {
	s.clear(holder)
	next.slot, holder.slot = holder.slot, nil
	next.slot.ending = nil
	s.holders.remove(holder)
	s.holders.add(next)
}

// end says that e's work is over, and that kick asks the store to confirm that.
func (g *gate) end(e *Lease, kick func()) {
	s := e.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders.has(e) {
		s.clear(e)
		e.needSlot().ending = kick
	}
}

// leave frees e's key if e has it. It may be called again: at the loss of a
// lease and at its end, whichever comes first. There is no renewal after either.
func (g *gate) leave(e *Lease) {
	s := e.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agenda.drop(e)
	if s.holders.has(e) {
		s.pass(e)
	}
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

// expect has a lease that was granted just now renewed when it is due.
func (s *gateShard) expect(due moment) {
	if s.agenda.sees(due) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agenda.lookBefore(due)
}

// schedule has e renewed once more, when it is due.
func (s *gateShard) schedule(e *Lease, due moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agenda.add(e, due)
}

// renew starts what is due.
func (s *gateShard) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agenda.start(&s.holders)
}

// stop ends all renewals that have not begun.
func (g *gate) stop() {
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		s.agenda.stop()
		s.mu.Unlock()
	}
}

// all returns the leases that have a key, granted or not.
func (g *gate) all() []*Lease {
	var all []*Lease
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		for e := range s.holders.all() {
			all = append(all, e)
		}
		s.mu.Unlock()
	}
	return all
}
