package pgstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// sweeps counts claims. Rows that are over are removed by the store's users, a few at a
// time: each sweepEvery-th claim of a process removes up to twice as many rows as claims
// can have made since, so that what is over goes faster than it comes.
type sweeps struct {
	claims atomic.Int64
	runs   atomic.Bool
	swept  swept
}

// swept is up to where this process has removed what is over, on the server's clock. A sweep
// begins there: what is below is not only done, it may also be dear to pass. As long as a
// transaction has an old snapshot, entries of the index stay whose rows are gone.
type swept struct {
	mu     sync.Mutex
	micros int64     // since 1970
	again  time.Time // when all is looked at again
}

const (
	sweepEvery = 64
	sweepRows  = 2 * sweepEvery
	sweepTime  = 5 * time.Second

	// sweepAllEvery is how often a sweep looks at all: for a row that was locked, or that
	// was committed after its end.
	sweepAllEvery = time.Minute
)

// begin returns where a sweep begins.
func (s *swept) begin() (micros int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.After(s.again) {
		s.micros, s.again = 0, now.Add(sweepAllEvery)
	}
	return s.micros
}

// upTo notes how far a sweep has come. A server of before version 14 rounds.
func (s *swept) upTo(micros int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.micros = max(s.micros, micros-1000)
}

// sweepSometimes removes rows in the background, one statement at a time.
func (s *Store) sweepSometimes(ctx context.Context) {
	if s.sweeps.claims.Add(1)%sweepEvery != 0 || !s.sweeps.runs.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.sweeps.runs.Store(false)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
		defer cancel()
		_, _ = s.sweep(ctx, sweepRows, s.sweeps.swept.begin()) // the next one finds what is left
	}()
}

// Sweep removes up to limit rows that are over, the oldest first, and returns how many it
// has removed. Rows that another process removes at the moment are left to it. Claims
// sweep as they come, so a program calls it only where none do.
func (s *Store) Sweep(ctx context.Context, limit int) (removed int, err error) {
	return s.sweep(ctx, limit, 0)
}

func (s *Store) sweep(ctx context.Context, limit int, from int64) (removed int, err error) {
	// It is planned anew each time: a plan for the table as it was, which may have been
	// empty, would read all of it.
	rows, err := s.queryAt(ctx, later, s.statements.sweep, pgx.QueryExecModeExec, int64(limit), from)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var upTo int64
	if rows.Next() {
		err = rows.Scan(&removed, &upTo, nil)
	}
	rows.Close()
	if err == nil {
		err = storeError(rows.Err())
	}
	if err == nil {
		s.sweeps.swept.upTo(upTo)
	}
	return removed, err
}
