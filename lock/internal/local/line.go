package local

import (
	"slices"
	"sync"

	"github.com/httplatch/httplatch/internal/keytext"
)

// Lines are the callers that wait for one of several keys, in order of arrival: a line for each
// group of keys. Only the first of a line looks for a free key. The zero Lines is empty. It is
// safe for concurrent use.
type Lines struct {
	mu    sync.Mutex
	lines map[string]*line
}

type line struct {
	places   []*Place
	allTaken bool // a search has found all keys taken
}

// Place is the place of a caller in a line.
type Place struct {
	First chan struct{} // closed when the place is the first

	of       *Lines
	name     string
	line     *line
	unserved bool // the store did not serve the latest search before it
}

// Join adds a caller to the line for keys. ok is false if maxWaiters for each key wait behind the first already.
func (l *Lines) Join(keys []string) (p *Place, ok bool) {
	name := keytext.Join(keys...)
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.lines[name]
	if to == nil {
		if l.lines == nil {
			l.lines = make(map[string]*line)
		}
		to = new(line)
		l.lines[name] = to
	}
	if len(to.places) > maxWaiters*len(keys) {
		return nil, false
	}
	p = &Place{of: l, name: name, line: to, First: make(chan struct{})}
	if to.places = append(to.places, p); len(to.places) == 1 {
		close(p.First)
	}
	return p, true
}

// NoteHeld notes that a search of p has found all keys taken.
func (p *Place) NoteHeld() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.line.allTaken = true
}

// NoteServed notes whether the store has served a search of p, the first of its line, for each caller that is
// behind p now. A caller that joins later asks the store itself.
func (p *Place) NoteServed(served bool) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	for _, behind := range p.line.places[1:] {
		behind.unserved = !served
	}
}

// Known returns the results of the searches before p: whether one has found all keys taken, and
// whether the store did not serve the latest one.
func (p *Place) Known() (allTaken, unserved bool) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	return p.line.allTaken, p.unserved
}

// Leave gives the place up. If it was the first, the next place becomes the first.
func (p *Place) Leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	at := slices.Index(p.line.places, p)
	p.line.places = slices.Delete(p.line.places, at, at+1)
	switch {
	case len(p.line.places) == 0:
		delete(p.of.lines, p.name)
	case at == 0:
		close(p.line.places[0].First)
	}
}
