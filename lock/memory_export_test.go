package lock

// NewMemoryOfFewHashes returns a memory store in which the keys of a test have
// four hashes, so that most share theirs with others.
func NewMemoryOfFewHashes(opts ...MemoryOption) Store {
	m := NewMemory(opts...).(*memory)
	m.mask = 3
	return m
}
