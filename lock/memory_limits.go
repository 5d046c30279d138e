package lock

import (
	"fmt"
	"sync/atomic"
)

const (
	defaultMemoryEntries = 1_000_000
	defaultMemoryBytes   = 256 << 20
)

// MemoryOption configures [NewMemory].
type MemoryOption interface{ applyMemory(cfg *memoryConfig) }

type memoryConfig struct {
	entries int
	bytes   int64
}

func (c memoryConfig) applyMemory(cfg *memoryConfig) { *cfg = c }

// WithLimits bounds a memory store: 1,000,000 entries and 256 MiB unless set.
// It panics if either is less than 1. bytes counts keys, tokens, owners,
// fingerprints and receipts, and 176 for each entry.
//
// At a bound, new claims are refused with [ErrFull], and nothing is evicted.
// What is there is served as ever: renewed, released, replayed.
//
// So that finished work finds room for its receipt, a claim with a fingerprint
// counts as 1 KiB more until it is settled, and a receipt of that size always
// fits. A longer one that does not fit is refused with ErrFull too, but not
// forgotten about: its claim stays Held for as long as the receipt was to be
// kept, so that the work does not run again, and can be settled meanwhile.
func WithLimits(entries int, bytes int64) MemoryOption {
	if entries < 1 || bytes < 1 {
		panic(fmt.Sprintf("lock: WithLimits(%d, %d): both limits must be at least 1", entries, bytes))
	}
	return memoryConfig{entries: entries, bytes: bytes}
}

// memoryRoom counts what a memory store keeps. Neither count ever exceeds its
// limit.
type memoryRoom struct {
	entries, bytes       atomic.Int64
	maxEntries, maxBytes int64
	noEntries, noBytes   error // made once: a full store is asked often
}

func (m *memoryRoom) limit(cfg memoryConfig) {
	m.maxEntries, m.maxBytes = int64(cfg.entries), cfg.bytes
	m.noEntries = fmt.Errorf("%w: it holds %d entries, as many as WithLimits allows", ErrFull, cfg.entries)
	m.noBytes = fmt.Errorf("%w: no room in the %d bytes that WithLimits allows", ErrFull, cfg.bytes)
}

// take takes room or returns an error that matches ErrFull. Less than nothing
// always fits.
func (m *memoryRoom) take(entries, bytes int64) error {
	if !add(&m.entries, entries, m.maxEntries) {
		return m.noEntries
	}
	if !add(&m.bytes, bytes, m.maxBytes) {
		m.entries.Add(-entries)
		return m.noBytes
	}
	return nil
}

func (m *memoryRoom) give(entries, bytes int64) {
	m.entries.Add(-entries)
	m.bytes.Add(-bytes)
}

// add adds n to count unless that exceeds limit. Adding first and taking back
// what is too much would refuse others that fit.
func add(count *atomic.Int64, n, limit int64) bool {
	for {
		old := count.Load()
		if n > limit-old && n > 0 {
			return false
		}
		if count.CompareAndSwap(old, old+n) {
			return true
		}
	}
}
