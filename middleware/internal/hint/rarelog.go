package hint

import (
	"sync"
	"time"
)

// rareLog remembers the lines that were logged, by class, for lines that every request could
// repeat. The zero value is ready.
type rareLog struct {
	mu     sync.Mutex
	logged map[string]repeated
}

type repeated struct {
	last   time.Time // logged
	silent int       // times since then
}

// Due reports whether a line of this class is to be logged now: once a minute. silent counts
// the lines that were not logged since the last one.
func (l *rareLog) Due(class string) (due bool, silent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	r, logged := l.logged[class]
	if logged && now.Sub(r.last) < time.Minute {
		r.silent++
		l.logged[class] = r
		return false, 0
	}
	if l.logged == nil {
		l.logged = make(map[string]repeated)
	}
	l.logged[class] = repeated{last: now}
	return true, r.silent
}
