package send

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/httplatch/httplatch/internal/ratelog"
)

// SilenceError says that a store neither answered nor failed within a budget.
type SilenceError time.Duration

// Error returns the time without an answer, in words.
func (s SilenceError) Error() string { return fmt.Sprintf("no answer within %v", time.Duration(s)) }

// Class returns a short and stable name, for metrics.
func (SilenceError) Class() string { return "silent" }

// GoneError says that the caller has left before the store could answer.
type GoneError struct{ Cause error }

// Error returns the text of the cause.
func (g GoneError) Error() string { return g.Cause.Error() }

// Unwrap returns the cause.
func (g GoneError) Unwrap() error { return g.Cause }

// Class returns a short and stable name, for metrics.
func (GoneError) Class() string { return "cancelled" }

// ErrGivenUp is the error of a store for a send that it gives up at the end of its
// time, though it may be applied.
var ErrGivenUp = errors.New("no answer in time")

// ErrSplit is the error of a store that has answered several claims at once and granted none.
// The retry budget does not pay for the next send: it is for a store that does not answer.
var ErrSplit = errors.New("the nodes are shared among several claims, none of which has a majority")

// panicError is the error of a send in which the store panicked.
type panicError struct {
	value any
	stack []byte // of the goroutine, at the panic
}

// Error returns the value of the panic.
func (p *panicError) Error() string { return fmt.Sprintf("the store panicked: %v", p.value) }

// Class returns a short and stable name, for metrics.
func (*panicError) Class() string { return "panic" }

// Recover is deferred by a send that returns *err. A store runs code of others, such as the
// hooks of a client. A panic there fails this send, the outcome of which is unknown, and does
// not end the process.
func Recover(err *error) {
	if p := recover(); p != nil {
		*err = &panicError{p, debug.Stack()}
	}
}

// LogPanic logs where a call of a store has panicked, if err comes from [Recover].
func LogPanic(seldom *ratelog.Log, logger *slog.Logger, err error) {
	p, ok := errors.AsType[*panicError](err)
	if !ok {
		return
	}
	if due, silent := seldom.Due("panic at"); due {
		logger.LogAttrs(context.Background(), slog.LevelError, "lock: a call of the store panicked; others are not logged for a minute", //nolint:forbidigo // of any call
			slog.Any("panic", p.value), slog.String("stack", string(p.stack)), slog.Int("repeated", silent),
			slog.String("do", "Check the hooks, the limiter and the dialer of the store's client: the stack names the one that panicked. Calls that meet it count as unanswered."))
	}
}
