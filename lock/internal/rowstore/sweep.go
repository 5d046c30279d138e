package rowstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// SweepEvery is the number of claims of a process between two sweeps.
	SweepEvery = 64

	// SweepAfter is the time for which an ended row stays: work may settle its claim after the lease.
	SweepAfter = 10 * time.Minute

	// sweepRows is the largest number of ended rows that a sweep removes: twice as many as claims
	// can have made since the last sweep, so that rows are removed faster than they end.
	sweepRows = 2 * SweepEvery

	sweepTime = 5 * time.Second

	// sweepAllEvery is the interval at which a sweep begins at the first row, to find rows that an
	// earlier sweep has missed: a row that was locked, or that was committed after its end.
	sweepAllEvery = time.Minute
)

// Sweeps counts claims, which remove ended rows in the background, a few at a time. Its
// methods are safe for concurrent use.
type Sweeps struct {
	claims atomic.Int64
	runs   atomic.Bool

	mu    sync.Mutex
	from  int64     // where a sweep begins, on the server's clock, in microseconds since 1970
	again time.Time // when to begin at the first row again
}

// From returns the moment at which a sweep begins: up to it, this process has removed ended rows. Earlier
// entries of the index belong to removed rows, but are expensive to skip as long as a transaction has
// an old snapshot.
func (s *Sweeps) From() (micros int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.After(s.again) {
		s.from, s.again = 0, now.Add(sweepAllEvery)
	}
	return s.from
}

// UpTo notes the moment up to which a sweep has removed rows. A server may round this moment.
func (s *Sweeps) UpTo(micros int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from = max(s.from, micros-1000)
}

// Claim counts a claim of one or more keys. If a sweep is due and none runs, it calls sweep on its
// own goroutine, to remove up to limit rows from a moment on. The next sweep finds the remaining rows.
func (s *Sweeps) Claim(ctx context.Context, keys int, sweep func(ctx context.Context, limit int, from int64) (removed int, err error)) {
	claims := s.claims.Add(int64(keys))
	if claims/SweepEvery == (claims-int64(keys))/SweepEvery || !s.runs.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.runs.Store(false)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
		defer cancel()
		_, _ = sweep(ctx, sweepRows, s.From())
	}()
}
