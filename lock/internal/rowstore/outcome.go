package rowstore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Found is the state of the row of a claim, as a question for the outcome of its COMMIT has found it.
type Found uint8

// The states.
const (
	Locked  Found = iota // written by a transaction in progress: the one of the COMMIT, unless another call writes at this moment
	Taken                // taken from the claim, without a receipt: nothing was committed, and no transaction can settle the claim from now on
	Settled              // written again with the receipt of the claim: the confirmation of this write also confirms the COMMIT before it
	Gone                 // there is none, or another claim has it: the claim was not settled, and cannot be
)

// Question asks for the outcome of a COMMIT without an answer.
type Question interface {
	// TakeClaim takes the claim away from the transaction that needs it for its receipt. It is a write,
	// so that the answer stays true, and that only a server that accepts writes can give it. Its wait for
	// the lock of the row is bounded. An error leaves the question open.
	TakeClaim(ctx context.Context) (Found, error)

	// EndIdle ends the session of the COMMIT if the session waits for its client: such a session
	// executes no COMMIT. It may do nothing.
	EndIdle(ctx context.Context)
}

// pause is the time between two questions.
const pause = 5 * time.Millisecond

var errLocked = errors.New("the transaction is in progress still")

// Committed asks until there is an answer, ctx ends, or a question fails. It ends the session of a
// transaction that was not committed if the session is idle, since it may have rows locked. An error
// wraps none: whether a question was applied, or was denied, does not show the outcome.
func Committed(ctx context.Context, store string, q Question) (bool, error) {
	for {
		found, err := q.TakeClaim(ctx)
		if err == nil && found != Settled {
			q.EndIdle(ctx)
		}
		if err == nil && found == Locked && !Pause(ctx, pause) {
			err = errors.Join(errLocked, context.Cause(ctx))
		}
		switch {
		case err != nil:
			return false, fmt.Errorf("%s: asking for the outcome of COMMIT: %s", store, err.Error())
		case found != Locked:
			return found == Settled, nil
		}
	}
}

// Pause waits for d, and reports whether ctx has not ended before.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
