package middleware

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// ProblemOf returns the refusal with which a handler can answer err, an error of [lock.Locker.Do], Acquire or Once,
// or of a [keyfunc.Func] that the handler has called: the one that a guard with default options would send. Guards
// around the handler do not keep it if ServeHTTP or [Problem.Respond] sends it. ProblemOf returns nil if err is nil,
// or has another cause:
//
//	err := locker.Do(r.Context(), lock.Key("coupon", code), redeem)
//	if p := latch.ProblemOf(err); p != nil {
//		p.ServeHTTP(w, r)
//		return
//	}
//
// The function of Do or Once may return an error of another Locker. ProblemOf returns a refusal for such an error,
// too.
func ProblemOf(err error) *Problem {
	refused, _ := errors.AsType[*lock.RefusedError](err)
	switch {
	case isA[*lock.TransactionError](err):
		return transactionProblem(err)
	case errors.Is(err, lock.ErrLost): // even if it matches other errors: the work has begun
		return ProblemOutcomeUnknown.problem(err)
	case refused != nil && (errors.Is(err, lock.ErrSettled) || errors.Is(err, lock.ErrHeld)):
		return lockProblem(err, &config{})
	case refused != nil, errors.Is(err, lock.ErrUnavailable), errors.Is(err, lock.ErrClosed):
		return onceProblem(err, nil)
	case isA[*keyfunc.Error](err), errors.Is(err, keyfunc.ErrMissing):
		return keyProblem(err)
	default:
		return nil
	}
}

// unservedProblem returns the answer to a request for whose key the Locker has no holder.
func unservedProblem(err error) *Problem {
	if errors.Is(err, lock.ErrClosed) {
		return ProblemShuttingDown.problem(err)
	}
	return ProblemUnavailable.problem(err)
}

// lockProblem returns the answer to a request whose lock was not acquired because of err.
func lockProblem(err error, c *config) *Problem {
	refused, ok := errors.AsType[*lock.RefusedError](err)
	if !ok {
		return unservedProblem(err)
	}
	settled, left := errors.Is(err, lock.ErrSettled), max(refused.Entry.Left, time.Second)
	if !settled || string(refused.Entry.Receipt) == record.Unknown {
		p := ProblemHeld.problem(err)
		p.Status = cmp.Or(c.contention, p.Status)
		if settled { // the time left of a renewed lease does not show when its work ends
			p.RetryAfter = left
		}
		return p
	}
	p := ProblemCoolingDown.problem(err)
	p.Status = cmp.Or(c.cooldownStatus, p.Status)
	if p.Status == http.StatusTooManyRequests { // some clients repeat whenever there is a Retry-After
		p.RetryAfter = left
	}
	return p
}

// onceProblem returns the answer to a request that was neither run nor replayed, or whose run lost its lease.
func onceProblem(err error, fingerprint []byte) *Problem {
	refused, _ := errors.AsType[*lock.RefusedError](err)
	switch {
	case isA[*lock.TransactionError](err):
		return transactionProblem(err)
	case refused != nil && errors.Is(err, lock.ErrMismatch):
		return mismatchProblem(refused, fingerprint)
	case errors.Is(err, lock.ErrAbandoned), errors.Is(err, lock.ErrLost):
		return ProblemOutcomeUnknown.problem(err)
	case refused != nil:
		return ProblemInProgress.problem(err)
	default:
		return unservedProblem(err)
	}
}

// transactionProblem returns the answer to a request in place of the answer of its handler, which ran in a transaction.
func transactionProblem(err error) *Problem {
	tx, _ := errors.AsType[*lock.TransactionError](err)
	switch {
	case tx != nil && tx.Aborted, isA[*record.EarlyError](err):
		p := ProblemRolledBack.problem(err)
		p.Status, p.RetryAfter = http.StatusInternalServerError, 0
		return p
	case errors.Is(err, lock.ErrLost):
		return ProblemInProgress.problem(err) // all was rolled back, and the other request has the key
	case errors.Is(err, lock.ErrUnknown):
		return ProblemUnconfirmed.problem(err)
	default:
		return ProblemRolledBack.problem(err)
	}
}

// mismatchProblem returns the answer to a request with fingerprint whose key has the entry of another request. The
// first byte of a fingerprint says how it was made.
func mismatchProblem(refused *lock.RefusedError, fingerprint []byte) *Problem {
	theirs := refused.Entry.Fingerprint
	if len(theirs) == 0 || len(fingerprint) == 0 || theirs[0] == fingerprint[0] {
		return ProblemKeyReused.problem(refused)
	}
	// A deployment has changed how fingerprints are made: the answer must be true whether or not the requests differ.
	switch refused.Entry.State {
	case lock.Settled:
		return ProblemResultNotReplayable.problem(refused)
	case lock.Abandoned:
		return ProblemOutcomeUnknown.problem(refused)
	case lock.Held, lock.Free:
	}
	return ProblemInProgress.problem(refused)
}

type bodyError struct{ error }

func (e *bodyError) Unwrap() error { return e.error }

// keyProblem returns the answer to a request whose body cannot be read, or whose key, scope or fingerprint function
// failed with err. If err is no [keyfunc.Error], and not
// [keyfunc.ErrMissing], it is a failure of the server.
func keyProblem(err error) *Problem {
	body, own := isA[*bodyError](err), new(keyfunc.Error)
	refused := errors.As(err, &own)
	status := http.StatusBadRequest
	if own.Status >= 400 && own.Status <= 599 {
		status = own.Status
	}
	var p *Problem
	switch {
	case errors.Is(err, bodybuf.ErrConsumed):
		return ProblemBodyConsumed.problem(err)
	case body && errors.Is(err, bodybuf.ErrTooLarge):
		return ProblemBodyTooLarge.problem(err)
	case body:
		return ProblemBodyUnreadable.problem(err)
	case !refused && !errors.Is(err, keyfunc.ErrMissing):
		return ProblemKeyFailed.problem(err)
	case status == http.StatusUnauthorized:
		p = ProblemUnauthenticated.problem(err)
	case status == http.StatusRequestEntityTooLarge:
		p = ProblemBodyTooLarge.problem(err)
	case status != http.StatusBadRequest:
		// The key function has chosen the status, for which no kind has a text.
		p = &Problem{Status: status, Title: http.StatusText(status), Err: err}
	case errors.Is(err, keyfunc.ErrMissing):
		p = ProblemKeyMissing.problem(err)
	default:
		p = ProblemKeyInvalid.problem(err)
	}
	p.Header, p.Detail = own.Header.Clone(), own.Detail
	if seconds, err := strconv.ParseInt(p.Header.Get("Retry-After"), 10, 32); err == nil {
		p.RetryAfter = time.Duration(max(0, seconds)) * time.Second // pages and clients of JSON-RPC show it, too
	}
	return p
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
