package middleware

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// rareLog logs errors of one cause at most once a minute: how often they occur
// is the client's choice.
type rareLog struct {
	mu     sync.Mutex
	last   time.Time
	silent int // occurrences since
}

func (l *rareLog) log(ctx context.Context, guard *guardLog, message string, err error) {
	l.mu.Lock()
	if !l.last.IsZero() && time.Since(l.last) < time.Minute {
		l.silent++
		l.mu.Unlock()
		return
	}
	silent := l.silent
	l.last, l.silent = time.Now(), 0
	l.mu.Unlock()
	guard.log(ctx, slog.LevelError, message+"; others are not logged for a minute",
		slog.Any("error", err), slog.Int("repeated", silent))
}
