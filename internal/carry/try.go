package carry

import (
	"context"
	"sync/atomic"
	"time"
)

// Try is the context of a send that its caller makes itself. It ends at a deadline.
//
// It does not end with the caller's context, of which it has the values: what was
// written then has to be answered all the same, and the answer is better than
// not to know. GivenUp is for those who wait for something else.
//
// Most sends are answered long before, by code that can see to the deadline
// without a timer for each. So Try makes what ends when it is first asked for.
type Try struct {
	Parent  context.Context //nolint:containedctx // the caller's
	Deaf    bool            // to the end of Parent
	Until   time.Time       // its deadline
	Keep    time.Time       // not before it, until when a command that is left behind is followed
	Counter Counter         // of what the call leaves behind
	Stalls  int             // how many tries before this one ended with ErrStalled
	Alarm   *Alarm          // ends it

	ending atomic.Pointer[ending] // nil until somebody asks
	over   atomic.Bool
}

// ending is what a Try ends with.
type ending struct {
	until time.Time
	done  chan struct{} // closed by the alarm
	err   error         // why; set before

	// The alarm's.
	prev, next *ending
	listed     bool
}

// End ends t, after the call has returned.
func (t *Try) End() {
	t.over.Store(true)
	if e := t.ending.Load(); e != nil {
		t.Alarm.end(e)
	}
}

// GivenUp is closed when the caller gives up. The deadline is not its business.
func (t *Try) GivenUp() <-chan struct{} {
	if t.Deaf {
		return nil
	}
	return t.Parent.Done()
}

// Unwanted says why nobody waits for an answer any more, nil if somebody does.
func (t *Try) Unwanted() error {
	switch {
	case t.over.Load():
		return context.Canceled
	case !t.Deaf && t.Parent.Err() != nil:
		return t.Parent.Err()
	case !time.Now().Before(t.Until):
		return context.DeadlineExceeded
	}
	return nil
}

// Deadline is when the time of the send is over.
func (t *Try) Deadline() (deadline time.Time, ok bool) { return t.Until, true }

// Done is closed at the deadline, and by End.
func (t *Try) Done() <-chan struct{} {
	if e := t.ending.Load(); e != nil {
		return e.done
	}
	e := &ending{until: t.Until, done: make(chan struct{})}
	if !t.ending.CompareAndSwap(nil, e) {
		return t.ending.Load().done // another was faster
	}
	t.Alarm.add(e)
	if t.over.Load() {
		t.Alarm.end(e)
	}
	return e.done
}

// Err is not nil when Done is closed.
func (t *Try) Err() error {
	e := t.ending.Load()
	if e == nil {
		return nil
	}
	select {
	case <-e.done:
		return e.err
	default:
		return nil
	}
}

// Value is that of the caller's context, but for the Counter.
func (t *Try) Value(k any) any {
	if k == (key{}) {
		return t.Counter
	}
	return t.Parent.Value(k)
}
