package middleware

import (
	"context"
	"log/slog"
)

// guardLog is the Locker's logger, and the name by which a guard says who it is.
type guardLog struct {
	logger *slog.Logger
	name   string
}

func (g *guardLog) log(ctx context.Context, level slog.Level, message string, attrs ...slog.Attr) {
	g.logger.LogAttrs(ctx, level, "httplatch: "+message, append([]slog.Attr{slog.String("name", g.name)}, attrs...)...)
}
