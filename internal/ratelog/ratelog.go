// Package ratelog limits log lines that may be due at every request to one a minute: a store
// that is down fails all requests, and says the same every time.
package ratelog

import (
	"sync"
	"time"
)

// Log remembers which classes of lines were logged. The zero value is ready, and safe for
// concurrent use.
type Log struct {
	mu     sync.Mutex
	logged map[string]*class
}

type class struct {
	last   time.Time // when a line was logged
	silent int       // lines that were not due since then
}

const (
	interval   = time.Minute
	maxClasses = 64
)

// Reset forgets all classes.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logged = nil
}

// Due reports whether a line of this class is to be logged now, and how many were not due
// since the last one.
func (l *Log) Due(name string) (due bool, silent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c := l.logged[name]
	switch {
	case c == nil:
		if l.logged == nil || len(l.logged) >= maxClasses {
			l.logged = make(map[string]*class)
		}
		c = new(class)
		l.logged[name] = c
	case now.Sub(c.last) < interval:
		c.silent++
		return false, 0
	}
	silent = c.silent
	c.last, c.silent = now, 0
	return true, silent
}
