package once

import (
	"context"
	"errors"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Watched is a transaction that names the paths which its commit takes.
type Watched struct {
	lock.Transaction

	Takes func(path string)
	Late  func() bool // reports whether the COMMIT arrives after its caller has stopped waiting; nil: never
}

// Settle implements [lock.Transaction].
func (t Watched) Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	ok, err = t.Transaction.Settle(ctx, receipt, keep)
	var answer interface{ SQLState() string } // of pgx
	switch {
	case err == nil && ok:
		t.Takes("committed")
	case err == nil:
		t.Takes("settle after a takeover")
	case errors.As(err, &answer) && answer.SQLState() == "40001":
		t.Takes("serialization failure")
	case errors.Is(err, lock.ErrNotApplied):
		t.Takes("settle failed, not committed")
	default:
		t.Takes("commit unanswered")
	}
	return ok, err
}

// Outcome implements [lock.Transaction].
func (t Watched) Outcome(ctx context.Context) (committed bool, err error) {
	committed, err = t.Transaction.Outcome(ctx)
	switch {
	case err != nil:
		t.Takes("outcome asked in vain")
	case committed:
		t.Takes("commit unanswered and applied")
	default:
		t.Takes("commit unanswered and not applied")
		if t.Late != nil && t.Late() {
			t.Takes("late commit found no claim")
		}
	}
	return committed, err
}

// NeverAsks is a transaction of a twin: it does not ask for the outcome of its commit.
type NeverAsks struct{ lock.Transaction }

// Outcome implements [lock.Transaction].
func (NeverAsks) Outcome(context.Context) (committed bool, err error) { return false, nil }
