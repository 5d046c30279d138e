package carry

import (
	"context"
	"sync"
	"time"
)

// Alarm ends tries at their deadlines. It has one timer for all of them: nearly
// all are over long before. The zero Alarm is ready for use.
type Alarm struct {
	mu          sync.Mutex
	first, last *ending // by their deadlines
	timer       *time.Timer
	set         time.Time // when the timer fires; zero if it does not
}

// add has e end at its deadline. It comes behind those that are earlier, which
// nearly always are all.
func (a *Alarm) add(e *ending) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.last
	for before != nil && e.until.Before(before.until) {
		before = before.prev
	}
	e.listed, e.prev = true, before
	if before == nil {
		e.next, a.first = a.first, e
	} else {
		e.next, before.next = before.next, e
	}
	if e.next == nil {
		a.last = e
	} else {
		e.next.prev = e
	}
	a.arm()
}

// end ends e before its deadline, if that has not come.
func (a *Alarm) end(e *ending) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.listed {
		a.remove(e)
		e.err = context.Canceled
		close(e.done)
	}
}

func (a *Alarm) remove(e *ending) {
	if e.prev == nil {
		a.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		a.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.listed, e.prev, e.next = false, nil, nil
}

// arm sets the timer for the earliest, unless it fires before that anyway.
func (a *Alarm) arm() {
	first := a.first.until
	if !a.set.IsZero() && !first.Before(a.set) {
		return
	}
	a.set = first
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(first), a.ring)
		return
	}
	a.timer.Reset(time.Until(first))
}

// ring ends those whose time is over.
func (a *Alarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set = time.Time{}
	for now := time.Now(); a.first != nil; {
		e := a.first
		if now.Before(e.until) {
			a.arm()
			return
		}
		a.remove(e)
		e.err = context.DeadlineExceeded
		close(e.done)
	}
}
