package lock

// memoryChain is what a shard has under one hash of keys. It is one record, or
// none; of more only chance knows, since nobody knows the seed. So the map of
// the shard needs no text to find a record by, which is in the record anyway,
// and the garbage collector no second look at it.
type memoryChain struct {
	hash  uint64
	first *memoryRecord
}

func (s *memoryShard) chain(hash uint64) memoryChain {
	return memoryChain{hash, s.records[hash]}
}

func (c *memoryChain) find(key string) *memoryRecord {
	r := c.first
	for r != nil && r.key() != key {
		r = r.same
	}
	return r
}

// link adds r to the shard.
func (s *memoryShard) link(at *memoryChain, r *memoryRecord) {
	r.same, at.first = at.first, r
	s.records[at.hash] = r
}

// unlink removes r, which is there, from the shard.
func (s *memoryShard) unlink(at *memoryChain, r *memoryRecord) {
	if at.first != r {
		before := at.first
		for before.same != r {
			before = before.same
		}
		before.same = r.same
		return
	}
	if at.first = r.same; at.first != nil {
		s.records[at.hash] = at.first
		return
	}
	delete(s.records, at.hash)
}
