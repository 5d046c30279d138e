package lock

import (
	"context"
	"errors"
	"log/slog"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// recovered is deferred by a call of a store that returns *err: a panic in it is the
// failure of that call, as package send has it for the calls of a Locker.
func recovered(err *error, o *outage, logger *slog.Logger) {
	if value := recover(); value != nil {
		*err = send.Panic(value)
		o.logPanic(logger, *err)
	}
}

// logPanic says once a minute where a store has panicked, if err is of that.
func (o *outage) logPanic(logger *slog.Logger, err error) {
	p, ok := errors.AsType[*send.PanicError](err)
	if !ok {
		return
	}
	due, silent := o.due("panic at")
	if !due {
		return
	}
	logger.LogAttrs(context.Background(), levelError, "lock: a call of the store panicked; others are not logged for a minute", //nolint:forbidigo // of any call
		attrPanic(p.Value), slog.String("stack", string(p.Stack)), slog.Int("repeated", silent),
		attrDo("see which hook, limiter or dialer of the store's client it was; calls that run into it count as not answered"))
}
