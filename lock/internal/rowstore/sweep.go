package rowstore

import "sync/atomic"

const (
	// SweepEvery is the number of claims of a process between two sweeps.
	SweepEvery = 64

	// SweepRows is the largest number of ended rows that a sweep removes: twice as many as claims
	// can have made since the last sweep, so that rows are removed faster than they end.
	SweepRows = 2 * SweepEvery
)

// Sweeps counts claims, which remove ended rows in the background, a few at a time. Its
// methods are safe for concurrent use.
type Sweeps struct {
	claims atomic.Int64
	runs   atomic.Bool
}

// Claim counts a claim of one or more keys. If a sweep is due and none runs, it calls sweep on its
// own goroutine.
func (s *Sweeps) Claim(keys int, sweep func()) {
	claims := s.claims.Add(int64(keys))
	if claims/SweepEvery == (claims-int64(keys))/SweepEvery || !s.runs.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.runs.Store(false)
		sweep()
	}()
}
