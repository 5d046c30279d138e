package lock

import (
	"context"
	"errors"
)

// Class names the cause of an error that matches [ErrUnavailable], [ErrLost] or [ErrClosed], or that a
// [Store] has returned, in one word: "dial" (no connection), "silent" (no answer in time),
// "OOM" and other codes of the server, "full", "overload", "cancelled" (the caller has left;
// the store is not at fault), "closed" (by [Locker.Close]). The log, package lockotel and alerts have the same names.
// They are stable, fit for a metric label and contain nothing secret, so that a readiness
// probe may answer with them. An error names itself by a method Class() string. Others are
// "_OTHER", and nil is "".
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
