package lock

import (
	"hash/maphash"
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
	mu     sync.Mutex
	leases map[string]*Lease
}

func newGate() *gate {
	g := &gate{seed: maphash.MakeSeed()}
	for i := range g.shards {
		g.shards[i].leases = make(map[string]*Lease)
	}
	return g
}

func (g *gate) shard(key string) *gateShard {
	return &g.shards[maphash.String(g.seed, key)%uint64(len(g.shards))]
}

// occupant is what enter found in the way.
type occupant struct {
	// gone is closed when the key is free again. It is nil unless the
	// occupant's work is over and only the store's word is missing.
	gone <-chan struct{}
	kick func()
}

// enter takes e's key for e, or returns who has it.
func (g *gate) enter(e *Lease) *occupant {
	s := g.shard(e.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	other, taken := s.leases[e.key]
	if !taken {
		s.leases[e.key] = e
		return nil
	}
	o := &occupant{}
	if other.ending != nil {
		o.gone, o.kick = other.ending.gone, other.ending.kick
	}
	return o
}

// ending is a lease whose work is over and whose end the store has not
// confirmed yet.
type ending struct {
	gone chan struct{}
	kick func() // asks the store again now
}

// end marks e as ending, unless its key is not its any more.
func (g *gate) end(e *Lease, kick func()) {
	s := g.shard(e.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[e.key] == e {
		e.ending = &ending{gone: make(chan struct{}), kick: kick}
	}
}

// leave frees e's key if e has it. It may be called again: at the loss of a
// lease and at its end, whichever comes first.
func (g *gate) leave(e *Lease) {
	s := g.shard(e.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[e.key] != e {
		return
	}
	delete(s.leases, e.key)
	if e.ending != nil {
		close(e.ending.gone)
		e.ending = nil
	}
}

// all returns the leases that are in the gate, granted or not.
func (g *gate) all() []*Lease {
	var all []*Lease
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		for _, e := range s.leases {
			all = append(all, e)
		}
		s.mu.Unlock()
	}
	return all
}
