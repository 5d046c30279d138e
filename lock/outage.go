package lock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
)

const (
	levelWarn  = slog.LevelWarn
	levelError = slog.LevelError
)

// outage remembers which troubles of the store have been logged. A store that
// is down fails every request, and says the same every time.
type outage struct {
	mu     sync.Mutex
	logged map[string]time.Time // by class of error
}

const (
	logEvery   = time.Minute
	maxClasses = 64
)

// due reports whether a trouble of this class is to be logged now.
func (o *outage) due(class string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if last, seen := o.logged[class]; seen && now.Sub(last) < logEvery {
		return false
	}
	if o.logged == nil || len(o.logged) >= maxClasses {
		o.logged = make(map[string]time.Time)
	}
	o.logged[class] = now
	return true
}

// trouble logs that the store refused or did not answer: each class of it at
// most once a minute. A store names the class by a method Class() string on its
// errors.
func (l *Locker) trouble(ctx context.Context, err error) {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return // the caller left; the store is not to blame
	}
	class := "other"
	if c := (interface{ Class() string })(nil); errors.As(err, &c) {
		class = c.Class()
	}
	if l.core.outage.due(class) {
		l.cfg.logger.LogAttrs(ctx, levelError, "lock: the store did not serve a call; repetitions are not logged for a minute",
			slog.String("class", class), slog.Any("error", err))
	}
}

// log reports what happened to one key, without telling the key.
func (l *Locker) log(ctx context.Context, level slog.Level, message, key string, err error) {
	sum := sha256.Sum256([]byte(key))
	l.cfg.logger.LogAttrs(ctx, level, message,
		slog.String("name", keytext.Name(key)), slog.String("key_sha256", hex.EncodeToString(sum[:8])), slog.Any("error", err))
}

func attrPanic(p any) slog.Attr         { return slog.Any("panic", p) }
func attrKind(kind EventKind) slog.Attr { return slog.String("event", string(kind)) }
