// Package outcome finds out whether a COMMIT without an answer took effect, for every store whose
// entries are rows of a database. The question is a write: it takes the claim away from the
// transaction that needs it for its receipt. So the answer stays true, and only a server that
// accepts writes can give it.
package outcome

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Found is the state in which the write has found the row of the entry.
type Found uint8

const (
	// Locked says that a transaction in progress has written the row: the transaction of the
	// COMMIT, unless another call writes at this moment.
	Locked Found = iota
	// Taken says that the claim had the row, without a receipt, and no longer has it. So
	// nothing was committed, and no transaction can settle the claim from now on.
	Taken
	// Settled says that the row has the receipt of the claim, and was written again. The
	// confirmation of this write also confirms the COMMIT before it.
	Settled
	// Gone says that there is no row, or that another claim has it. The claim was not settled,
	// and cannot be.
	Gone
)

// Row is the row of one claim. Each database implements it.
type Row interface {
	// TakeClaim makes the write. Its wait for the lock of the row is bounded. An error leaves the
	// question open.
	TakeClaim(ctx context.Context) (Found, error)

	// EndIdle ends the session of the COMMIT if the session waits for its client: such a session
	// executes no COMMIT. It may do nothing.
	EndIdle(ctx context.Context)
}

// pause is the time between two questions.
const pause = 5 * time.Millisecond

var errLocked = errors.New("the transaction is in progress still")

// Decide asks until there is an answer, ctx ends, or a question fails. It ends the session of a
// transaction that was not committed if the session is idle, since it may have rows locked. An error
// wraps none: whether a question was applied, or was denied, does not show the outcome.
func Decide(ctx context.Context, store string, row Row) (committed bool, err error) {
	if committed, err = decide(ctx, row); err != nil {
		return false, fmt.Errorf("%s: asking for the outcome of COMMIT: %s", store, err.Error())
	}
	return committed, nil
}

func decide(ctx context.Context, row Row) (committed bool, err error) {
	for {
		found, err := row.TakeClaim(ctx)
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
