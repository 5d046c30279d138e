package lockotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/httplatch/httplatch/lock"
)

// The outcomes of a request, as attributes of spans and of other packages' metrics.
const (
	lockOutcome = attribute.Key("lock.outcome")
	onceOutcome = attribute.Key("idempotency.outcome")
)

// failedOpen replaces the outcome of a failed acquire whose work ran unprotected.
const failedOpen = "failed_open"

func outcomeKey(e lock.Event) attribute.Key {
	if e.Once {
		return onceOutcome
	}
	return lockOutcome
}

// outcomeOf returns the outcome of the acquire that e reports, "" if e reports something else.
func outcomeOf(ctx context.Context, e lock.Event) string {
	switch e.Kind {
	case lock.EventClaimed, lock.EventRecovered, lock.EventTakenOver, lock.EventResumed:
		if e.Once {
			return "executed"
		}
		return "acquired"
	case lock.EventReplayed:
		return "replayed"
	case lock.EventSkipped:
		return "skipped"
	case lock.EventRejected:
		return lock.Class(e.Err)
	case lock.EventRefused:
		return refusal(ctx, e)
	case lock.EventUnknown, lock.EventUnavailable:
		switch {
		case e.Call != "claim":
			return ""
		case lock.Class(e.Err) == cancelled:
			return cancelled
		}
		return failureOf(e.Kind)
	case lock.EventRenewed, lock.EventLost, lock.EventReleased, lock.EventSettled, lock.EventHandedOver, lock.EventReaped, lock.EventBypassed:
	}
	return ""
}

// refusal returns the reason for which a key was refused.
func refusal(ctx context.Context, e lock.Event) string {
	switch {
	case gone(ctx):
		return cancelled
	case errors.Is(e.Err, lock.ErrMismatch):
		return "mismatch"
	case errors.Is(e.Err, lock.ErrAbandoned):
		return "abandoned"
	case errors.Is(e.Err, lock.ErrSettled):
		return "cooling_down"
	case errors.Is(e.Err, lock.ErrClosed):
		return "closed"
	case lock.Class(e.Err) == "failed":
		return "failed"
	case e.Waited > 0:
		return "timeout"
	case e.Once:
		return "in_progress"
	default:
		return "contended"
	}
}

// failureOf distinguishes a call that may have been applied from a call that was not.
func failureOf(kind lock.EventKind) string {
	if kind == lock.EventUnknown {
		return "unknown"
	}
	return "error"
}

// gone reports whether the caller has left.
func gone(ctx context.Context) bool { return ctx.Err() != nil }

// other replaces values that are not distinguished, as in [lock.Class].
const other = "_OTHER"

// cancelled is the outcome of an acquire whose caller has left, and the class of the error.
const cancelled = "cancelled"
