package pgstore

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// swept is the moment, on the server's clock, up to which this process has removed ended rows.
// A sweep begins at this moment, and not at the start of the index. Earlier index entries belong
// to removed rows, but are expensive to skip as long as a transaction has an old snapshot.
type swept struct {
	mu     sync.Mutex
	micros int64     // since 1970
	again  time.Time // when to begin at the first row again
}

const (
	sweepTime = 5 * time.Second

	// sweepWorkAfter is the shortest time for which the row of a transaction stays after the
	// lease of its claim. The work may settle its claim after the lease.
	sweepWorkAfter = 10 * time.Minute

	// sweepAllEvery is the interval at which a sweep begins at the first row, to find rows that an
	// earlier sweep has missed: a row that was locked, or that was committed after its end.
	sweepAllEvery = time.Minute
)

// begin returns the moment at which a sweep begins.
func (s *swept) begin() (micros int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.After(s.again) {
		s.micros, s.again = 0, now.Add(sweepAllEvery)
	}
	return s.micros
}

// upTo notes the moment up to which a sweep has removed rows. A server before version 14 rounds
// this moment.
func (s *swept) upTo(micros int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.micros = max(s.micros, micros-1000)
}

// sweepSometimes removes rows in the background, one statement at a time.
func (s *Store) sweepSometimes(ctx context.Context, keys int) {
	s.sweeps.Claim(keys, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
		defer cancel()
		_, _ = s.sweep(ctx, rowstore.SweepRows, s.swept.begin()) // the next sweep finds the remaining rows
	})
}

// Sweep removes up to limit ended rows, the oldest first, and returns how many it has removed. It
// skips rows that another process is removing. Claims sweep by themselves, so only a program that
// makes no claims needs to call it.
func (s *Store) Sweep(ctx context.Context, limit int) (removed int, err error) {
	return s.sweep(ctx, limit, 0)
}

func (s *Store) sweep(ctx context.Context, limit int, from int64) (removed int, err error) {
	// The statement is planned each time: a plan from the time when the table was empty would
	// read the whole table.
	rows, err := s.queryAt(ctx, rowstore.Later, s.statements.sweep, pgx.QueryExecModeExec, int64(limit), from)
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
		s.swept.upTo(upTo)
	}
	return removed, err
}
