package memstore

import (
	"fmt"
	"math/bits"
	"sync/atomic"
)

// WithScopeShare sets the share of the entries and of the bytes of [WithLimits] that one scope may
// use: 0.25 unless set, which is a quarter. It panics unless 0 < share <= 1; 1 lets one scope fill
// the store.
//
// The scope of a claim ([lock.Claim].Scope) names the owner of the work: package middleware
// sets it to the result of the scope function of Idempotent or Dedupe. A scope above its
// share gets [lock.ErrFull] for new claims, and the middleware answers 503, while other scopes
// are served. Its existing entries are renewed, settled and replayed, but a receipt of more
// than 1 KiB that would exceed the share is replaced by an empty one. The share never refuses a
// scope's only entry, nor a claim without a scope, such as the claim of a lock.
//
// If all callers are one scope, as with keyfunc.Global, set it to 1. Otherwise three quarters
// of the store stay unused.
func WithScopeShare(share float64) Option {
	if !(share > 0 && share <= 1) { // NaN is neither
		panic(fmt.Sprintf("memstore: WithScopeShare(%v): the share must be above 0 and at most 1", share))
	}
	return option(func(cfg *config) { cfg.share = share })
}

// scopeShares counts the entries and bytes of the scopes of a memory store, in a table of
// fixed size: there may be a million scopes of one entry each. A scope is counted in one cell
// of each of two rows, and uses at most the lower of the two counts (a count-min sketch). It
// may use less, if other scopes share both cells, and is then refused too early.
//
// That is improbable by design. All scopes together use at most the limits. So in each row, which
// has columns cells, other scopes fill at most 1/share cells up to a share. A scope meets such a
// cell in both rows with a probability of at most (1/(share*columns))², which is one in a million
// for columns = 1024/share.
type scopeShares struct {
	maxEntries, maxBytes int64
	used                 error
	cells                [2][]scopeCell // none if a scope may use all
}

type scopeCell struct{ entries, bytes atomic.Int64 }

const (
	columnsByShare  = 1 << 10
	maxScopeColumns = 1 << 16 // half of a scope's hash selects a column
)

func (s *scopeShares) limit(cfg config) {
	if cfg.share == 1 {
		return
	}
	s.maxEntries, s.maxBytes = int64(cfg.share*float64(cfg.entries)), int64(cfg.share*float64(cfg.bytes))
	s.used = fullError(fmt.Sprintf("this scope has used its share of %d entries and %d bytes, others are served: raise WithLimits or WithScopeShare "+
		"(1 where all callers are one scope, as with keyfunc.Global), or shorten WithKeep", s.maxEntries, s.maxBytes))
	columns := 1 << bits.Len(uint(min(columnsByShare/cfg.share, maxScopeColumns)-1))
	for i := range s.cells {
		s.cells[i] = make([]scopeCell, columns)
	}
}

// cellsOf returns the cells of a scope, nil if it is not counted.
func (s *scopeShares) cellsOf(scope uint32) (a, b *scopeCell) {
	if scope == 0 || s.cells[0] == nil {
		return nil, nil
	}
	last := uint32(len(s.cells[0]) - 1) //nolint:gosec // below maxScopeColumns
	return &s.cells[0][scope&last], &s.cells[1][scope>>16&last]
}

// allow reports whether a scope may use entries and bytes in addition. It reads the counts before
// they grow, so concurrent claims may exceed the share by one entry each; see take for receipts.
func (s *scopeShares) allow(scope uint32, entries, bytes int64) bool {
	a, b := s.cellsOf(scope)
	if a == nil || entries <= 0 && bytes <= 0 {
		return true
	}
	has := min(a.entries.Load(), b.entries.Load())
	if has+entries <= 1 {
		return true
	}
	return has+entries <= s.maxEntries && min(a.bytes.Load(), b.bytes.Load())+bytes <= s.maxBytes
}

func (s *scopeShares) add(scope uint32, entries, bytes int64) {
	if a, b := s.cellsOf(scope); a != nil {
		a.entries.Add(entries)
		a.bytes.Add(bytes)
		b.entries.Add(entries)
		b.bytes.Add(bytes)
	}
}
