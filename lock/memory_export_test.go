package lock

import "unsafe"

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
