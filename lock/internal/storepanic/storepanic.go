// Package storepanic logs panics in the calls of a store.
package storepanic

import (
	"context"
	"errors"
	"log/slog"

	"github.com/httplatch/httplatch/internal/ratelog"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Log logs where a call of a store has panicked, if err is the error of a panic.
func Log(due *ratelog.Log, logger *slog.Logger, err error) {
	p, ok := errors.AsType[*send.PanicError](err)
	if !ok {
		return
	}
	now, silent := due.Due("panic at")
	if !now {
		return
	}
	logger.LogAttrs(context.Background(), slog.LevelError, "lock: a call of the store panicked; others are not logged for a minute", //nolint:forbidigo // of any call
		slog.Any("panic", p.Value), slog.String("stack", string(p.Stack)), slog.Int("repeated", silent),
		slog.String("do", "Check the hooks, the limiter and the dialer of the store's client: the stack names the one that panicked. Calls that meet it count as unanswered."))
}
