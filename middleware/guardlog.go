package middleware

import (
	"context"
	"log/slog"

	"github.com/httplatch/httplatch/internal/mistake"
	"github.com/httplatch/httplatch/lock"
)

// guardLog is the Locker's logger, and the name by which a guard says who it is.
type guardLog struct {
	logger  *slog.Logger
	name    string
	witness mistake.Witness // nil, except in a test by latchtest.Incident
}

// reportTo takes logger and witness from the Locker of the guard.
func (g *guardLog) reportTo(l *lock.Locker) {
	g.logger = l.Logger()
	g.witness, _ = l.Store().(mistake.Witness)
}

// mistake logs that the guard is mounted in a way that it cannot protect.
func (g *guardLog) mistake(ctx context.Context, message string) {
	g.log(ctx, slog.LevelError, message)
	if g.witness != nil {
		g.witness.Mistake(g.name, message)
	}
}

func (g *guardLog) log(ctx context.Context, level slog.Level, message string, attrs ...slog.Attr) {
	g.logger.LogAttrs(ctx, level, "httplatch: "+message, append([]slog.Attr{slog.String("name", g.name)}, attrs...)...)
}
