package lock

import (
	"context"
	"sync"

	"github.com/httplatch/httplatch/internal/carry"
)

// A call on a quorum returns when a majority has answered, and leaves calls on
// nodes behind; one that shares a round trip returns when its caller's time is
// over. The Locker has to know of them: Close waits for its calls, and a claim is
// swept for until everything that carries it has landed. So the Locker hands down
// in the context what it counts by, and stores count there too.

// handDown returns ctx with fl, or if that is nil, with c.
func handDown(ctx context.Context, c *core, fl *flight) context.Context {
	if fl == nil {
		return carry.With(ctx, c)
	}
	return carry.With(ctx, fl)
}

// Depart counts a command that a call leaves behind.
func (c *core) Depart() { c.calls.enter() }

// Arrive says that such a command is not on its way any more.
func (c *core) Arrive(bool) { c.calls.leave() }

// Depart counts a claim that a call leaves behind.
func (f *flight) Depart() {
	f.under.Add(1)
	f.minority.core.Depart()
}

// Arrive says that such a claim is not on its way any more.
func (f *flight) Arrive(certain bool) {
	f.arrive(certain)
	f.minority.core.Arrive(certain)
}

// flightOf returns the flight that was handed down, nil if none was.
func flightOf(ctx context.Context) *flight {
	f, _ := carry.From(ctx).(*flight)
	return f
}

// countOf returns what counts the calls of the Locker that ctx comes from, nil if
// it comes from none.
func countOf(ctx context.Context) *tally {
	switch handed := carry.From(ctx).(type) {
	case *flight:
		return &handed.minority.core.calls
	case *core:
		return &handed.calls
	}
	return nil
}

// minority is the part of a flight that a quorum counts: a claim that was
// answered may still have sends without an answer, to the nodes that the answer
// did not wait for.
type minority struct {
	core  *core
	mu    sync.Mutex
	under int    // rounds
	loose bool   // a node may have the claim, or get it yet, and has not said so
	then  func() // called if that turns out
}

// maxLoose bounds the sweeps for single nodes that did not answer. What is left
// on them ends with its lease. A node that never answers must not fill up the
// reaper, on which claims depend.
const maxLoose = 1 << 8

// departRound counts a round of claims. What became of all of them is not looked
// into.
func (f *flight) departRound() {
	if f == nil {
		return
	}
	f.lost.Store(true)
	f.under.Add(1)
	f.minority.mu.Lock()
	defer f.minority.mu.Unlock()
	f.minority.under++
}

// arriveRound says that nothing of a round is on its way any more.
func (f *flight) arriveRound() {
	if f == nil {
		return
	}
	f.arrive(false)
	f.minority.mu.Lock()
	defer f.minority.mu.Unlock()
	if f.minority.under--; f.minority.under == 0 {
		f.minority.then = nil
	}
}

// loosen says that a node may have the claim, or get it yet.
func (f *flight) loosen() {
	if f == nil {
		return
	}
	m := &f.minority
	m.mu.Lock()
	m.loose = true
	then := m.then
	m.then = nil
	m.mu.Unlock()
	if then != nil {
		then()
	}
}

// ifLoose calls do, now or later, if a node may have the claim after it was ended.
func (f *flight) ifLoose(do func()) {
	m := &f.minority
	m.mu.Lock()
	loose := m.loose
	if !loose && m.under > 0 {
		m.then = do
	}
	m.mu.Unlock()
	if loose {
		do()
	}
}

// quiet reports whether there is nothing that ifLoose could have to call.
func (f *flight) quiet() bool {
	if f == nil {
		return true
	}
	f.minority.mu.Lock()
	defer f.minority.mu.Unlock()
	return !f.minority.loose && f.minority.under == 0
}

// dead reports whether token is of a claim that the asking Locker knows to be
// held by nobody.
func (f *flight) dead(token string) bool {
	return f != nil && f.minority.core.reaper.orphan(token)
}

// sweepMinority sweeps for a claim that was answered, if it turns out that a node
// may have it all the same.
func (e *Lease) sweepMinority() {
	if e.flight.quiet() {
		return
	}
	s, r := e.sweep(), e.locker.core.reaper
	e.flight.ifLoose(func() {
		if r.count.Load() < maxLoose {
			r.add(s)
		}
	})
}
