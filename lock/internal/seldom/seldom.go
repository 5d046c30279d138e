// Package seldom logs what may happen at every request once a minute: a store that is
// down fails them all, and says the same every time.
package seldom

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// Log remembers what has been logged. The zero value is ready, and safe for concurrent use.
type Log struct {
	mu     sync.Mutex
	logged map[string]*repeated // by class of trouble
}

type repeated struct {
	last   time.Time // logged
	silent int       // times since then
}

const (
	logEvery   = time.Minute
	maxClasses = 64
)

// Due reports whether a trouble of this class is to be logged now, and how
// often it was not since the last time.
func (l *Log) Due(class string) (due bool, silent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	r := l.logged[class]
	switch {
	case r == nil:
		if l.logged == nil || len(l.logged) >= maxClasses {
			l.logged = make(map[string]*repeated)
		}
		r = new(repeated)
		l.logged[class] = r
	case now.Sub(r.last) < logEvery:
		r.silent++
		return false, 0
	}
	silent = r.silent
	r.last, r.silent = now, 0
	return true, silent
}

// Panic says where a call of a store has panicked, if err is of that.
func (l *Log) Panic(logger *slog.Logger, err error) {
	p, ok := errors.AsType[*send.PanicError](err)
	if !ok {
		return
	}
	due, silent := l.Due("panic at")
	if !due {
		return
	}
	logger.LogAttrs(context.Background(), slog.LevelError, "lock: a call of the store panicked; others are not logged for a minute", //nolint:forbidigo // of any call
		slog.Any("panic", p.Value), slog.String("stack", string(p.Stack)), slog.Int("repeated", silent),
		slog.String("do", "see which hook, limiter or dialer of the store's client it was; calls that run into it count as not answered"))
}
