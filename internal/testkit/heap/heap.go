// Package heap measures the heap for tests that are not parallel.
package heap

import "runtime"

// InUse returns the bytes of the objects that are in use, after two collections: the first empties pools.
func InUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // fewer than 1<<63
}
