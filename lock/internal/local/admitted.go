package local

import (
	"iter"
	"maps"
)

// Admit adds h, whose key the store has granted by a ticket, past the callers that claim the key
// in this process. If one of these callers has the key in the table, the store will refuse its
// claim, and h is kept among the admitted leases of the shard until that caller leaves. Then h has
// the key.
func (t *Table) Admit(h *Holding) {
	s, key := t.shardOf(h), h.lease.Key()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.holders[key]; !taken {
		s.holders[key] = h
		return
	}
	if s.admitted == nil {
		s.admitted = make(map[*Holding]struct{})
	}
	s.admitted[h] = struct{}{}
}

// Admitted returns another lease that has the key of h by a ticket ([Table.Admit]) while h has it in
// the table, if there is one.
func (t *Table) Admitted(h *Holding) (other Lease, is bool) {
	s := t.shardOf(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.admitted {
		if a != h && a.lease.Key() == h.lease.Key() {
			return a.lease, true
		}
	}
	return nil, false
}

// leases yields all leases of s. The shard is locked.
func (s *shard) leases() iter.Seq[*Holding] {
	return func(yield func(*Holding) bool) {
		for h := range maps.Values(s.holders) {
			if !yield(h) {
				return
			}
		}
		for h := range s.admitted {
			if !yield(h) {
				return
			}
		}
	}
}

// promote gives the key of h to an admitted lease, and reports whether there is one. The queue of h
// then waits for the admitted lease.
func (s *shard) promote(h *Holding) bool {
	if len(s.admitted) == 0 { // an iterator would be a tenth of the cost of the table
		return false
	}
	for a := range s.admitted {
		if a.lease.Key() != h.lease.Key() {
			continue
		}
		delete(s.admitted, a)
		own := a.slot
		if h.slot == nil {
			s.holders[a.lease.Key()] = a
			return true
		}
		s.hand(h, a)
		if own != nil {
			a.slot.confirmEnd = own.confirmEnd
		}
		return true
	}
	return false
}

// hasAdmitted reports whether h is an admitted lease.
func (s *shard) hasAdmitted(h *Holding) bool {
	_, admitted := s.admitted[h]
	return admitted
}

// leaveAdmitted removes h, if it is an admitted lease, and makes the caller that claims the key ask
// the store again.
func (s *shard) leaveAdmitted(h *Holding) {
	if !s.hasAdmitted(h) {
		return
	}
	delete(s.admitted, h)
	if holder, taken := s.holders[h.lease.Key()]; taken {
		if sl := holder.slot; sl != nil {
			sl.triggerClaim()
		}
	}
}
