package pgstore

import (
	"context"
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
}

const (
	sweepEvery = 64
	sweepRows  = 2 * sweepEvery
	sweepTime  = 5 * time.Second
)

// sweepSometimes removes rows in the background, one statement at a time.
func (s *Store) sweepSometimes(ctx context.Context) {
	if s.sweeps.claims.Add(1)%sweepEvery != 0 || !s.sweeps.runs.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.sweeps.runs.Store(false)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
		defer cancel()
		_, _ = s.Sweep(ctx, sweepRows) // the next one finds what is left
	}()
}

// Sweep removes up to limit rows that are over, the oldest first, and returns how many it
// has removed. Rows that another process removes at the moment are left to it. Claims
// sweep as they come, so a program calls it only where none do.
func (s *Store) Sweep(ctx context.Context, limit int) (removed int, err error) {
	// It is planned anew each time: a plan for the table as it was, which may have been
	// empty, would read all of it.
	rows, err := s.query(ctx, s.statements.sweep, pgx.QueryExecModeExec, int64(limit))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	if rows.Next() {
		err = rows.Scan(&removed, nil)
	}
	rows.Close()
	if err == nil {
		err = storeError(rows.Err())
	}
	return removed, err
}
