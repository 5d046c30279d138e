package memstore

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/httplatch/httplatch/lock"
)

const (
	defaultEntries    = 1_000_000
	defaultBytes      = 256 << 20
	defaultScopeShare = 0.25
)

// Option configures [New].
type Option interface{ apply(cfg *config) }

type config struct {
	entries int
	bytes   int64
	share   float64
}

type option func(cfg *config)

func (o option) apply(cfg *config) { o(cfg) }

// WithLimits bounds a memory store: 1,000,000 entries and 256 MiB unless set.
// It panics if either is less than 1. bytes counts keys, tokens, owners,
// fingerprints and receipts, and 176 for each entry. The part of a receipt beyond
// 1 KiB counts an eighth more, since the allocator rounds up by about as much. So
// the live data of the store stays below bytes, and its heap, which Go lets grow to
// twice the live data, below twice the limit. Answers of running handlers, and copies of answers
// that are being sent, need additional memory: up to WithBodyLimits of package middleware for each
// request in flight.
//
// At a bound, new claims are refused with [lock.ErrFull], and nothing is evicted:
// existing entries are still renewed, released and replayed. One scope is refused
// earlier, so that it does not fill the store for the others: see [WithScopeShare].
//
// A claim with a fingerprint or a linger, as [lock.Locker.Once] makes them, reserves
// 1 KiB until it is settled, so a receipt of that size always fits. A longer receipt
// that does not fit is refused with ErrFull too. The [lock.Locker] then settles an
// empty one, so that the work does not run again, and package middleware answers
// repeats with 409, "result-not-replayable". If a caller does not settle an empty
// one, its claim stays Held until the receipt would have ended.
func WithLimits(entries int, bytes int64) Option {
	if entries < 1 || bytes < 1 {
		panic(fmt.Sprintf("memstore: WithLimits(%d, %d): both limits must be at least 1", entries, bytes))
	}
	return option(func(cfg *config) { cfg.entries, cfg.bytes = entries, bytes })
}

// room counts the entries and bytes of a memory store. Neither count ever exceeds its
// limit.
type room struct {
	entries, bytes       atomic.Int64
	maxEntries, maxBytes int64
	noEntries, noBytes   error // made once: a full store refuses many claims
	shares               scopeShares
	receipts             sync.Mutex // held while a receipt is checked against its share and counted
}

func (m *room) limit(cfg config) {
	m.maxEntries, m.maxBytes = int64(cfg.entries), cfg.bytes
	m.noEntries = fullError(fmt.Sprintf("it holds %d entries, as many as WithLimits allows: raise it, or shorten WithKeep", cfg.entries))
	m.noBytes = fullError(fmt.Sprintf("no room in the %d bytes that WithLimits allows: raise it, or shorten WithKeep", cfg.bytes))
	m.shares.limit(cfg)
}

// take takes room for a scope, or returns an error that matches ErrFull. A negative size
// always fits. Receipts take room one after the other: at the same time, they could exceed the
// share by so much that all claims of the scope are refused for as long as the receipts are kept.
func (m *room) take(scope uint32, entries, bytes int64) error {
	if entries == 0 && bytes > 0 {
		m.receipts.Lock()
		defer m.receipts.Unlock()
	}
	if !m.shares.allow(scope, entries, bytes) {
		return m.shares.used
	}
	return m.grow(scope, entries, bytes)
}

// grow takes room for an existing entry, and does not check the share of its scope.
func (m *room) grow(scope uint32, entries, bytes int64) error {
	if !add(&m.entries, entries, m.maxEntries) {
		return m.noEntries
	}
	if !add(&m.bytes, bytes, m.maxBytes) {
		m.entries.Add(-entries)
		return m.noBytes
	}
	m.shares.add(scope, entries, bytes)
	return nil
}

// add adds n to count unless the sum exceeds limit. It does not add first and take back
// the excess: meanwhile, calls whose n fits would be refused.
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

func (m *room) give(scope uint32, entries, bytes int64) {
	m.entries.Add(-entries)
	m.bytes.Add(-bytes)
	m.shares.add(scope, -entries, -bytes)
}

// fullError names the bound that a memory store has reached, and the cure.
type fullError string

func (e fullError) Error() string { return lock.ErrFull.Error() + ": " + string(e) }
func (fullError) Unwrap() error   { return lock.ErrFull }

// Class returns the class of the error, for the Locker's log.
func (fullError) Class() string { return "full" }
