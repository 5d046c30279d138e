package lock

import "unsafe"

// NewMemoryOfFewHashes returns a memory store in which the keys of a test have
// four hashes, so that most share theirs with others.
func NewMemoryOfFewHashes(opts ...MemoryOption) Store {
	m := NewMemory(opts...).(*memory)
	m.mask = 3
	return m
}

// ScopeCounts returns the largest of what a memory store counts for a scope, be it
// above or below zero.
func ScopeCounts(s Store) (entries, bytes int64) {
	for _, row := range s.(*memory).room.shares.cells {
		for i := range row {
			entries = max(entries, row[i].entries.Load(), -row[i].entries.Load())
			bytes = max(bytes, row[i].bytes.Load(), -row[i].bytes.Load())
		}
	}
	return entries, bytes
}

// Sweep removes all that is over from a memory store.
func Sweep(s Store) { s.(*memory).sweep() }

// RecordBytes is what the allocator gives to a record of a memory store.
const RecordBytes = unsafe.Sizeof(memoryRecord{})
