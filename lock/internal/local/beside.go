package local

import (
	"iter"
	"maps"
)

// Admit adds h, whose key the store has granted by a ticket, past the callers that claim the key
// in this process. If one of these callers has the key in the table, the store will refuse its
// claim. Until that caller leaves, h stands beside it. Then h has the key.
func (t *Table[H]) Admit(h H) {
	s, key := t.shardOf(h), h.Key()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.holders[key]; !taken {
		s.holders[key] = h
		return
	}
	if s.beside == nil {
		s.beside = make(map[H]struct{})
	}
	s.beside[h] = struct{}{}
}

// Beside returns another lease on the key of h that Admit has added beside it, if there is one.
func (t *Table[H]) Beside(h H) (beside H, is bool) {
	s := t.shardOf(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.beside {
		if b != h && b.Key() == h.Key() {
			return b, true
		}
	}
	return beside, false
}

// leases yields all leases of s. The shard is locked.
func (s *shard[H]) leases() iter.Seq[H] {
	return func(yield func(H) bool) {
		for h := range maps.Values(s.holders) {
			if !yield(h) {
				return
			}
		}
		for h := range s.beside {
			if !yield(h) {
				return
			}
		}
	}
}

// promote gives the key of h to a lease beside it, and reports whether there is one. The queue
// of h waits for that lease then.
func (s *shard[H]) promote(h H) bool {
	if len(s.beside) == 0 { // an iterator would be a tenth of the cost of the table
		return false
	}
	for b := range s.beside {
		if b.Key() != h.Key() {
			continue
		}
		delete(s.beside, b)
		e := b.Entry()
		own := e.slot
		if h.Entry().slot == nil {
			s.holders[b.Key()] = b
			return true
		}
		s.hand(h, b)
		if own != nil {
			e.slot.confirmEnd = own.confirmEnd
		}
		return true
	}
	return false
}

// leaveBeside removes h, if it stands beside another lease, and has the caller that claims its key
// ask the store again.
func (s *shard[H]) leaveBeside(h H) {
	if _, beside := s.beside[h]; !beside {
		return
	}
	delete(s.beside, h)
	if holder, taken := s.holders[h.Key()]; taken {
		if sl := holder.Entry().slot; sl != nil {
			sl.triggerClaim()
		}
	}
}
