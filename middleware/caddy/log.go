package latchcaddy

import (
	"context"
	"log/slog"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"
)

// logHandler writes to the default log of the configuration that is currently loaded. A store can
// outlive the configuration that has opened it, and the log of that configuration is closed.
type logHandler struct {
	derive func(slog.Handler) slog.Handler // adds groups and attributes; nil: none
}

func (h logHandler) current() slog.Handler {
	const noTraces = slog.Level(127)
	to := slog.Handler(zapslog.NewHandler(caddy.Log().Core(), zapslog.WithName("latch"), zapslog.AddStacktraceAt(noTraces)))
	if h.derive != nil {
		to = h.derive(to)
	}
	return to
}

func (h logHandler) with(add func(slog.Handler) slog.Handler) slog.Handler {
	before := h.derive
	return logHandler{func(to slog.Handler) slog.Handler {
		if before != nil {
			to = before(to)
		}
		return add(to)
	}}
}

// Enabled is part of [slog.Handler].
func (h logHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.current().Enabled(ctx, l)
}

// Handle is part of [slog.Handler].
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.current().Handle(ctx, r)
}

// WithAttrs is part of [slog.Handler].
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) })
}

// WithGroup is part of [slog.Handler].
func (h logHandler) WithGroup(name string) slog.Handler {
	return h.with(func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
}
