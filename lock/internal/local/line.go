package local

import (
	"container/list"
	"sync"
)

// Lines are the callers that wait for one of several keys, in order of arrival: a line for each
// group of keys. Only the first of a line looks for a free key. The zero Lines is empty. It is
// safe for concurrent use.
type Lines struct {
	mu    sync.Mutex
	lines map[string]*list.List // of *Place
}

// Place is the place of a caller in a line.
type Place struct {
	of    *Lines
	name  string
	place *list.Element
	first chan struct{} // closed when it is the first
}

// MaxInLine bounds a line for each of its keys.
const MaxInLine = maxWaiters

// Join adds a caller to the line of that name, unless it has most callers behind the first.
func (l *Lines) Join(name string, most int) (p *Place, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.lines[name]
	switch {
	case line == nil:
		if l.lines == nil {
			l.lines = make(map[string]*list.List)
		}
		line = list.New()
		l.lines[name] = line
	case line.Len() > most:
		return nil, false
	}
	p = &Place{of: l, name: name, first: make(chan struct{})}
	if p.place = line.PushBack(p); line.Len() == 1 {
		close(p.first)
	}
	return p, true
}

// First is closed when p is the first of its line.
func (p *Place) First() <-chan struct{} { return p.first }

// Leave gives the place up. If it was the first, the next is.
func (p *Place) Leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	line := p.of.lines[p.name]
	wasFirst := line.Front() == p.place
	line.Remove(p.place)
	next := line.Front()
	switch {
	case next == nil:
		delete(p.of.lines, p.name)
	case wasFirst:
		close(next.Value.(*Place).first) //nolint:errcheck,forcetypeassert // a line has no other values
	}
}
