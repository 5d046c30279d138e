package carry

import (
	"context"
	"sync/atomic"
	"time"
)

// Try is the context of a send that its caller makes itself. It ends with that of
// the caller, and at a deadline.
//
// Most sends are answered long before, by code that can see to the deadline
// without a timer for each. So Try makes what ends when it is first asked for.
type Try struct {
	parent   context.Context //nolint:containedctx // it is one
	deaf     bool            // to the end of parent
	deadline time.Time
	counter  Counter

	ending atomic.Pointer[ending] // nil until somebody asks
	over   atomic.Bool
}

// ending is what ends with a Try.
type ending struct {
	context.Context //nolint:containedctx // it is one

	cancel context.CancelFunc
}

// Start makes t, which is new, the context of a send. deadline counts unless
// that of parent is earlier. One that is deaf does not end with parent.
func (t *Try) Start(parent context.Context, deaf bool, deadline time.Time, c Counter) {
	if earlier, ok := parent.Deadline(); ok && !deaf && earlier.Before(deadline) {
		deadline = earlier
	}
	t.parent, t.deaf, t.deadline, t.counter = parent, deaf, deadline, c
}

// End gives back what t holds, after the call has returned.
func (t *Try) End() {
	t.over.Store(true)
	if e := t.ending.Load(); e != nil {
		e.cancel()
	}
}

// GivenUp is closed when the caller gives up. The deadline is not its business.
func (t *Try) GivenUp() <-chan struct{} {
	if t.deaf {
		return nil
	}
	return t.parent.Done()
}

// Deadline is when the time of the send is over.
func (t *Try) Deadline() (deadline time.Time, ok bool) { return t.deadline, true }

// Done is closed when the caller gives up, and at the deadline.
func (t *Try) Done() <-chan struct{} {
	if e := t.ending.Load(); e != nil {
		return e.Done()
	}
	e := new(ending)
	parent := t.parent
	if t.deaf {
		parent = context.WithoutCancel(parent)
	}
	e.Context, e.cancel = context.WithDeadline(parent, t.deadline)
	if !t.ending.CompareAndSwap(nil, e) {
		e.cancel() // another was faster
		return t.ending.Load().Done()
	}
	if t.over.Load() {
		e.cancel()
	}
	return e.Done()
}

// Err says why it is over. It does not look at the clock: as long as nobody has
// asked for Done, the deadline is not its business either.
func (t *Try) Err() error {
	if e := t.ending.Load(); e != nil {
		return e.Err()
	}
	if t.over.Load() {
		return context.Canceled
	}
	if t.deaf {
		return nil
	}
	return t.parent.Err()
}

// Value is that of the caller's context, but for the Counter.
func (t *Try) Value(k any) any {
	if k == (key{}) {
		return t.counter
	}
	return t.parent.Value(k)
}
