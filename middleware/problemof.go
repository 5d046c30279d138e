package middleware

import (
	"errors"
	"net/http"
	"time"

	"github.com/httplatch/httplatch/internal/oncecall"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
)

// ProblemOf returns the refusal by which a handler answers err, an error of
// [lock.Locker.Do], Acquire, Once, or of a [keyfunc.Func] that it calls itself. It is the
// refusal of a guard with default options, and no guard around the handler keeps it.
// It is nil if err is nil, or has another cause:
//
//	err := locker.Do(r.Context(), lock.Key("coupon", code), redeem)
//	if p := latch.ProblemOf(err); p != nil {
//		p.ServeHTTP(w, r)
//		return
//	}
//
// What the function of Do or Once returned is err, too: an error of a call to another
// Locker in it is answered as that call was refused.
func ProblemOf(err error) *Problem {
	refused, _ := errors.AsType[*lock.RefusedError](err)
	_, unconfirmed := errors.AsType[*oncecall.UnconfirmedError](err)
	_, aborted := errors.AsType[*oncecall.AbortedError](err)
	_, undone := errors.AsType[*oncecall.UndoneError](err)
	_, chosen := errors.AsType[*keyfunc.Error](err)
	switch {
	case aborted, unconfirmed, undone:
		return transactionProblem(err)
	case errors.Is(err, lock.ErrLost): // whatever else: the work has begun
		return ProblemOutcomeUnknown.problem(http.StatusConflict, 0, err)
	case refused != nil && errors.Is(err, lock.ErrSettled):
		return ProblemCoolingDown.problem(http.StatusTooManyRequests, max(refused.Entry.Left, time.Second), err)
	case refused != nil && errors.Is(err, lock.ErrHeld):
		return ProblemHeld.problem(http.StatusConflict, time.Second, err)
	case refused != nil, errors.Is(err, lock.ErrUnavailable), errors.Is(err, lock.ErrClosed):
		return onceProblem(err, nil)
	case chosen, errors.Is(err, keyfunc.ErrMissing):
		return keyProblem(err)
	default:
		return nil
	}
}

// unservedProblem is the answer to a request that was not processed because the
// Locker could not find out which caller has its key.
func unservedProblem(err error) *Problem {
	if errors.Is(err, lock.ErrClosed) {
		return ProblemShuttingDown.problem(http.StatusServiceUnavailable, time.Second, err)
	}
	return ProblemUnavailable.problem(http.StatusServiceUnavailable, time.Second, err)
}

// lockProblem is the answer to a request whose lock was not acquired because
// of err.
func (g *guard) lockProblem(err error) *Problem {
	var refused *lock.RefusedError
	switch {
	case errors.As(err, &refused) && errors.Is(err, lock.ErrSettled):
		retryAfter := max(refused.Entry.Left, time.Second)
		if g.cooldownStatus != http.StatusTooManyRequests {
			retryAfter = 0 // chosen so that no client repeats it, which some do with whatever has Retry-After
		}
		return ProblemCoolingDown.problem(g.cooldownStatus, retryAfter, err)
	case refused != nil:
		// A lease that is renewed does not say when its work ends, so what is
		// left of it is no reason to wait that long.
		return ProblemHeld.problem(g.contention, time.Second, err)
	default:
		return unservedProblem(err)
	}
}

// onceProblem is the answer to a request that [lock.Locker.Once] has neither
// run nor replayed, or whose run lost its lease, because of err. fingerprint is
// that of the request.
func onceProblem(err error, fingerprint []byte) *Problem {
	var refused *lock.RefusedError
	_, undone := errors.AsType[*oncecall.UndoneError](err)
	switch {
	case undone:
		return transactionProblem(err)
	case errors.As(err, &refused) && errors.Is(err, lock.ErrMismatch):
		return mismatchProblem(refused, fingerprint)
	case errors.Is(err, lock.ErrAbandoned), errors.Is(err, lock.ErrLost):
		return ProblemOutcomeUnknown.problem(http.StatusConflict, 0, err)
	case refused != nil:
		return ProblemInProgress.problem(http.StatusConflict, time.Second, err)
	default:
		return unservedProblem(err)
	}
}

// transactionProblem is the answer to a request whose handler has run in a transaction,
// and whose answer is not to be sent because of err.
func transactionProblem(err error) *Problem {
	_, aborted := errors.AsType[*oncecall.AbortedError](err)
	_, early := errors.AsType[*earlyError](err)
	switch {
	case aborted, early:
		return ProblemRolledBack.problem(http.StatusInternalServerError, 0, err)
	case errors.Is(err, lock.ErrLost):
		// All was rolled back, and what another request does decides.
		return ProblemInProgress.problem(http.StatusConflict, time.Second, err)
	case errors.Is(err, lock.ErrUnknown):
		return ProblemUnconfirmed.problem(http.StatusServiceUnavailable, time.Second, err)
	default:
		return ProblemRolledBack.problem(http.StatusServiceUnavailable, time.Second, err)
	}
}

func mismatchProblem(refused *lock.RefusedError, fingerprint []byte) *Problem {
	theirs := refused.Entry.Fingerprint
	if len(theirs) == 0 || len(fingerprint) == 0 || theirs[0] == fingerprint[0] {
		return ProblemKeyReused.problem(http.StatusUnprocessableEntity, 0, refused)
	}
	// They were made in different ways, before and after a deployment. That does
	// not say that the requests differ, nor that they do not.
	switch refused.Entry.State {
	case lock.Settled:
		return ProblemResultNotReplayable.problem(http.StatusConflict, 0, refused)
	case lock.Abandoned:
		return ProblemOutcomeUnknown.problem(http.StatusConflict, 0, refused)
	case lock.Held, lock.Free:
	}
	return ProblemInProgress.problem(http.StatusConflict, time.Second, refused)
}
