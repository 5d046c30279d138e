package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// The reasons for a refusal. A refusal is a [*RefusedError] that matches one of them.
var (
	// ErrHeld: the key has a holder.
	ErrHeld = errors.New("lock: key is held")
	// ErrSettled: the work was done, and its receipt is kept. A cool-down is an empty receipt.
	ErrSettled = errors.New("lock: key is settled")
	// ErrMismatch: the key was used for a different request.
	ErrMismatch = errors.New("lock: key belongs to a different request")
	// ErrAbandoned: a holder vanished and the outcome of its work is unknown.
	ErrAbandoned = errors.New("lock: key was abandoned by its holder")
)

// errReplay ends an acquire of Once that found a receipt. It is not exported: the cause of a caller's
// context may match an exported error, from another key.
var errReplay = errors.New("lock: a receipt was found")

// Errors other than refusals.
var (
	// ErrUnavailable: the store gave no answer within the budget, or denied the
	// call. The work of an acquire that returns it was not started.
	ErrUnavailable = errors.New("lock: store unavailable")
	// ErrUnknown: like ErrUnavailable, which it matches too, but the store may
	// have applied the call. The Locker then cleans up after the call.
	ErrUnknown error = &refined{"lock: outcome unknown", ErrUnavailable}
	// ErrDenied: the store has answered that it does not serve the call, and will give the
	// same answer until an operator changes something: a permission, a password, a disk. It
	// matches ErrUnavailable too. A store returns it with ErrNotApplied, because the call had
	// no effect. The call is then not repeated within its budget. Only clean-up and renewals
	// go on, at their usual pace.
	ErrDenied error = &refined{"lock: denied by the store", ErrUnavailable}
	// ErrFull: the store is at its bounds, or the scope of the claim has used up its
	// share (memstore.WithScopeShare). It matches ErrDenied too.
	ErrFull error = &refined{"lock: store full", ErrDenied}
	// ErrClosed: the Locker was closed.
	ErrClosed = errors.New("lock: closed")
	// ErrLost: the lease ended before the work did: another process took or
	// removed the entry, it could not be renewed in time, or it reached
	// WithMaxHold. The text says which.
	ErrLost = errors.New("lock: lease lost")
	// ErrHandedOver: the lease ended because its key was handed over, by [Lease.HandOver].
	ErrHandedOver = errors.New("lock: the key was handed over")
	// ErrNotApplied is for stores: an error that matches it says that the call
	// certainly had no effect and will have none. Every other error means
	// "unknown".
	ErrNotApplied = errors.New("lock: not applied")
)

// RefusedError has the reason for which a key was refused, and the entry under it. It matches
// ErrHeld, ErrSettled, ErrMismatch or ErrAbandoned. Entry.Key is the key as given to the Locker:
// for a set, the first of its keys that was refused.
type RefusedError struct {
	Reason error
	Entry  Entry // Left, if known, is the best value for Retry-After
}

// Error names the reason, never the key or the token.
func (e *RefusedError) Error() string {
	if e.Entry.Left > 0 {
		return fmt.Sprintf("%v for another %v", e.Reason, e.Entry.Left)
	}
	return e.Reason.Error()
}

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Reason }

// FailedRunError is the error of a [Locker.Begin] that has waited for a run that failed. It does not wrap
// Err, because that is the error of another call.
type FailedRunError struct{ Err error }

// Error says that a run has failed, and not why.
func (*FailedRunError) Error() string {
	return "lock: the run that this call waited for has failed"
}

// Class returns a short and stable name of the error, for metrics.
func (*FailedRunError) Class() string { return "failed" }

// TransactionError is the error of a run in a transaction ([WithTransaction]) whose work was rolled back, or
// whose commit got no answer. Err says which.
type TransactionError struct {
	Err     error
	Aborted bool // rolled back because of the work in it, so that another run would end the same way
}

// Error returns the reason.
func (t *TransactionError) Error() string {
	if t.Aborted {
		return "lock: the work was rolled back, because its transaction could not be committed: " + t.Err.Error()
	}
	return t.Err.Error()
}

// Unwrap returns Err.
func (t *TransactionError) Unwrap() error { return t.Err }

// Class returns a short and stable name of the error, for metrics.
func (t *TransactionError) Class() string {
	if t.Aborted {
		return "aborted"
	}
	return Class(t.Err)
}

// refined is a special case of another error.
type refined struct {
	text    string
	general error
}

func (r *refined) Error() string { return r.text }

func (r *refined) Unwrap() error { return r.general }

// loss is the reason for the loss of a lease. It matches ErrLost.
type loss struct {
	class, reason string
	do            string // for operators
}

func (l *loss) Error() string { return ErrLost.Error() + ": " + l.reason }

func (*loss) Unwrap() error { return ErrLost }

// Class returns a short and stable name of the reason, for metrics.
func (l *loss) Class() string { return l.class }

var (
	errTaken = &loss{
		"taken", "another process took or removed the entry, or the store lost it",
		"Compare what was written: two holders may have worked at once. If no operator freed the entry, the server has evicted it, " +
			"lost it in a failover or a restart, or was flushed.",
	}
	errExpired = &loss{
		"expired", "it could not be renewed in time",
		"Check the store and this process: the store did not answer for most of a lease (5 s, before the first renewal of a lock), or the process was " +
			"paused for as long. " +
			"Two holders may have worked at once, unless the resource that they write to refuses older fences.",
	}
)

// heldTooLong returns the loss of a lease that was held for its maximum.
func heldTooLong(maximum time.Duration) *loss {
	return &loss{
		"max_hold", fmt.Sprintf("it was held for its maximum of %v", maximum),
		"Check why the work took so long. If it needs the time, set a longer WithMaxHold.",
	}
}

// verdictOf returns the meaning of a store's error for its call.
func verdictOf(err error) send.Verdict {
	switch {
	case errors.Is(err, ErrDenied), errors.Is(err, errors.ErrUnsupported):
		return send.Final // the same call would get this answer again
	case errors.Is(err, ErrNotApplied):
		return send.NotApplied
	default:
		return send.Unknown
	}
}

// Class names the cause of an error in one word. The error matches [ErrUnavailable], [ErrLost]
// or [ErrClosed], or comes from a [Store]. The words are "dial" (no connection), "silent" (no
// answer in time), "OOM" and other codes of the server, "full", "overload", "cancelled" (the
// caller has left; the store is not at fault) and "closed" (by [Locker.Close]). The log, package
// lockotel and alerts use them too. They are stable, fit for a metric label and contain no
// secret, so a readiness probe may answer with them. An error can name itself by a method
// Class() string. Other errors are "_OTHER", and nil is "".
func Class(err error) string {
	var named interface{ Class() string }
	switch {
	case err == nil:
		return ""
	case errors.As(err, &named):
		return named.Class()
	case errors.Is(err, ErrFull):
		return "full"
	case errors.Is(err, ErrClosed):
		return "closed"
	case errors.Is(err, context.DeadlineExceeded):
		return "silent"
	case errors.Is(err, context.Canceled):
		return classCancelled
	default:
		return "_OTHER"
	}
}

// classCancelled is the class of an error for which the store is not to blame.
const classCancelled = "cancelled"

var errReleased = fmt.Errorf("%w: it was released", ErrLost)

var errBypassed = fmt.Errorf("%w: the work runs unprotected, so there is nothing to prolong or to leave", ErrUnavailable)
