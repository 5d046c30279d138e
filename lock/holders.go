package lock

import "iter"

// holders are the leases that have a key in one shard of the gate. It is a map
// by key whose chains are made of the leases themselves: every lease comes and
// goes once, and a Go map's insertion and removal cost several times as much.
type holders struct {
	chains []*Lease // a power of two of them
	count  int
}

const firstChains = 8

func (h *holders) init() { h.chains = make([]*Lease, firstChains) }

// chain is where the leases begin whose keys have this hash. The lowest bits
// have chosen the shard.
func (h *holders) chain(hash uint64) **Lease {
	return &h.chains[hash/gateShards%uint64(len(h.chains))]
}

// find returns the lease that has key, nil if none has.
func (h *holders) find(key string, hash uint64) *Lease {
	e := *h.chain(hash)
	for e != nil && (e.hash != hash || e.key != key) {
		e = e.next
	}
	return e
}

func (h *holders) has(e *Lease) bool { return h.find(e.key, e.hash) == e }

// add adds e, whose key nobody has.
func (h *holders) add(e *Lease) {
	if h.count == len(h.chains) {
		h.grow()
	}
	h.count++
	h.link(e)
}

func (h *holders) link(e *Lease) {
	first := h.chain(e.hash)
	e.next, *first = *first, e
}

// remove removes e, which is there.
func (h *holders) remove(e *Lease) {
	at := h.chain(e.hash)
	for *at != e {
		at = &(*at).next
	}
	*at, e.next = e.next, nil
	h.count--
}

func (h *holders) grow() {
	old := h.chains
	h.chains = make([]*Lease, 2*len(old))
	for _, e := range old {
		for e != nil {
			next := e.next
			h.link(e)
			e = next
		}
	}
}

// all yields all leases.
func (h *holders) all() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for _, e := range h.chains {
			for ; e != nil; e = e.next {
				if !yield(e) {
					return
				}
			}
		}
	}
}
