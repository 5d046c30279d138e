package lock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// outage remembers which troubles have been logged. A store that is down fails
// every request, and says the same every time.
type outage struct {
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

// due reports whether a trouble of this class is to be logged now, and how
// often it was not since the last time.
func (o *outage) due(class string) (due bool, silent int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	r := o.logged[class]
	switch {
	case r == nil:
		if o.logged == nil || len(o.logged) >= maxClasses {
			o.logged = make(map[string]*repeated)
		}
		r = new(repeated)
		o.logged[class] = r
	case now.Sub(r.last) < logEvery:
		r.silent++
		return false, 0
	}
	silent = r.silent
	r.last, r.silent = now, 0
	return true, silent
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
	due, silent := l.core.outage.due(class)
	if !due {
		return
	}
	message, do := "lock: the store did not serve a call", "see to the store: until it answers, "
	if errors.Is(err, ErrDenied) {
		message, do = "lock: the store denied a call", "do what the error says: until then, "
	}
	l.cfg.logger.LogAttrs(ctx, levelError, message+"; repetitions are not logged for a minute",
		slog.String("class", class), slog.Any("error", err), slog.Int("repeated", silent),
		attrDo(do+"work is refused, or runs unprotected where that was asked for"))
}
