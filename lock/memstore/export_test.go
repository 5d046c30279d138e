package memstore

import (
	"strconv"
	"unsafe"
)

// ScopeCounts returns the largest counts that a memory store has for a scope, above or below
// zero.
func ScopeCounts(s *Store) (entries, bytes int64) {
	for _, row := range s.room.shares.cells {
		for i := range row {
			entries = max(entries, row[i].entries.Load(), -row[i].entries.Load())
			bytes = max(bytes, row[i].bytes.Load(), -row[i].bytes.Load())
		}
	}
	return entries, bytes
}

// KeysOfOneShard returns n keys that a memory store locks as one.
func KeysOfOneShard(s *Store, n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		key := strconv.Itoa(i)
		shard, _ := s.lock(key)
		shard.mu.Unlock()
		if shard == &s.shards[0] {
			keys = append(keys, key)
		}
	}
	return keys
}

// Sweep removes all that is over from a memory store.
func Sweep(s *Store) { s.sweep() }

// RecordBytes is the size of a record of a memory store.
const RecordBytes = unsafe.Sizeof(record{})
