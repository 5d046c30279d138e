// Package fence finds out what became of a COMMIT that got no answer, for every store whose
// entries are rows of a database. The question is a write: it takes from the transaction the
// claim that its receipt needs, so that the answer stays true whatever arrives later, and no
// server that only follows another one can give it.
package fence

import (
	"context"
	"errors"
	"time"
)

// Found is the answer of the entry's row to the write.
type Found uint8

const (
	// Locked says that a transaction which has not ended has written the row: the one under
	// COMMIT, unless another call writes at this moment.
	Locked Found = iota
	// Taken says that the row was the claim's, without a receipt, and that no transaction
	// can settle it any more: nothing was committed, and nothing will be.
	Taken
	// Settled says that the row has the receipt of the claim, and was written again: what
	// confirms that write confirms the COMMIT before it.
	Settled
	// Gone says that the row is not there, or is another claim's: the claim was not settled,
	// and cannot be.
	Gone
)

// Row is implemented by each database, for the row of one claim.
type Row interface {
	// Fence is the write. It waits for the lock of the row for a while, not for ever. An error
	// is no answer.
	Fence(ctx context.Context) (Found, error)

	// EndIdle ends the session of the COMMIT if that waits for its client, in which case
	// there is no COMMIT that it executes. It may do nothing.
	EndIdle(ctx context.Context)
}

// pause is the time between two questions.
const pause = 5 * time.Millisecond

var errLocked = errors.New("the transaction is in progress still")

// Decide asks until there is an answer, ctx ends, or the question fails. The session of a
// transaction that was not committed is ended if it is idle, since it may have rows locked.
func Decide(ctx context.Context, row Row) (committed bool, err error) {
	for {
		found, err := row.Fence(ctx)
		switch {
		case err != nil:
			return false, err
		case found == Settled:
			return true, nil
		}
		row.EndIdle(ctx)
		if found != Locked {
			return false, nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false, errors.Join(errLocked, context.Cause(ctx))
		}
	}
}
