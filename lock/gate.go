package lock

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"
)

// gate knows which keys this process has pending or granted, so that a
// duplicate in the same process costs no round trip, and so that of two claims
// of one process for one key never both are on their way: a locker that had
// both could not tell, from the answers alone, its living claim from a dead one.
type gate struct {
	seed   maphash.Seed
	shards [64]gateShard
}

type gateShard struct {
	mu    sync.Mutex
	slots map[string]*slot
}

// slot is a key that is pending or granted in this process.
type slot struct {
	holder  *Lease
	granted bool      // the holder is; before that, nobody knows whose the key is
	ending  func()    // set when the holder's work is over and only the store's word is missing: asks for it again
	freeing bool      // and what is to be confirmed is a release
	queue   []*waiter // in the order of arrival
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
		g.shards[i].slots = make(map[string]*slot)
	}
	return g
}

func (g *gate) shard(key string) *gateShard {
	return &g.shards[maphash.String(g.seed, key)%uint64(len(g.shards))]
}

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
func (g *gate) enter(e *Lease, patient bool) entrance {
	s := g.shard(e.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	sl, taken := s.slots[e.key]
	if !taken {
		s.slots[e.key] = &slot{holder: e}
		return entrance{open: true}
	}
	if sl.granted && !sl.freeing && !sameRequest(e.fingerprint, sl.holder.fingerprint) {
		return entrance{mismatch: true, owner: sl.holder.owner()}
	}
	if !patient && sl.ending == nil || len(sl.queue) >= maxWaiters {
		return entrance{ending: sl.ending, owner: sl.holder.owner()}
	}
	w := &waiter{lease: e, ready: make(chan struct{})}
	sl.queue = append(sl.queue, w)
	return entrance{waiter: w, ending: sl.ending, owner: sl.holder.owner()}
}

// sameRequest compares fingerprints. Work that has none is not told apart.
func sameRequest(a, b []byte) bool {
	return len(a) == 0 || len(b) == 0 || bytes.Equal(a, b)
}

// quit ends the wait of w, and says in which way. usurp takes the key from a
// holder whose work is over, though the store has not confirmed its end.
func (g *gate) quit(w *waiter, usurp bool) quitted {
	s := g.shard(w.lease.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := s.slots[w.lease.key]
	i := slices.Index(sl.queue, w)
	if i < 0 {
		return quitGiven
	}
	sl.queue = slices.Delete(sl.queue, i, i+1)
	switch {
	case sl.ending == nil:
		return quitHeld
	case usurp:
		sl.hand(w.lease)
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

// hand makes e the holder.
func (sl *slot) hand(e *Lease) {
	sl.holder, sl.granted, sl.ending, sl.freeing = e, false, nil, false
}

// grant says that e's claim was granted.
func (g *gate) grant(e *Lease) {
	s := g.shard(e.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl := s.slots[e.key]; sl != nil && sl.holder == e {
		sl.granted = true
	}
}

// end says that e's work is over, how, and that kick asks the store to confirm
// it.
func (g *gate) end(e *Lease, kind EventKind, kick func()) {
	s := g.shard(e.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl := s.slots[e.key]; sl != nil && sl.holder == e {
		sl.ending, sl.freeing = kick, kind == EventReleased
	}
}

// leave frees e's key if e has it. It may be called again: at the loss of a
// lease and at its end, whichever comes first.
func (g *gate) leave(e *Lease) {
	s := g.shard(e.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl := s.slots[e.key]; sl != nil {
		s.pass(sl, e)
	}
}

// pass gives the key of e, if e has it, to the first of its queue.
func (s *gateShard) pass(sl *slot, e *Lease) {
	if sl.holder != e {
		return
	}
	if len(sl.queue) == 0 {
		delete(s.slots, e.key)
		return
	}
	next := sl.queue[0]
	sl.queue = slices.Delete(sl.queue, 0, 1)
	sl.hand(next.lease)
	close(next.ready)
}

// all returns the leases that have a key, granted or not.
func (g *gate) all() []*Lease {
	var all []*Lease
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		for _, sl := range s.slots {
			all = append(all, sl.holder)
		}
		s.mu.Unlock()
	}
	return all
}
