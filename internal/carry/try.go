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
	Parent  context.Context //nolint:containedctx // the caller's
	Deaf    bool            // to the end of Parent
	Until   time.Time       // its deadline
	Counter Counter         // of what the call leaves behind
	Stalls  int             // how many tries before this one ended with ErrStalled

	ending atomic.Pointer[ending] // nil until somebody asks
	over   atomic.Bool
}

// ending is what ends with a Try.
type ending struct {
	context.Context //nolint:containedctx // it is one

	cancel context.CancelFunc
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
	if t.Deaf {
		return nil
	}
	return t.Parent.Done()
}

// Deadline is when the time of the send is over.
func (t *Try) Deadline() (deadline time.Time, ok bool) { return t.Until, true }

// Done is closed when the caller gives up, and at the deadline.
func (t *Try) Done() <-chan struct{} {
	if e := t.ending.Load(); e != nil {
		return e.Done()
	}
	e := new(ending)
	parent := t.Parent
	if t.Deaf {
		parent = context.WithoutCancel(parent)
	}
	e.Context, e.cancel = context.WithDeadline(parent, t.Until)
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
		if err := e.Err(); err != nil {
			return err
		}
		// It ends a moment after GivenUp says so.
	}
	if t.over.Load() {
		return context.Canceled
	}
	if t.Deaf {
		return nil
	}
	return t.Parent.Err()
}

// Value is that of the caller's context, but for the Counter.
func (t *Try) Value(k any) any {
	if k == (key{}) {
		return t.Counter
	}
	if e := t.ending.Load(); e != nil {
		return e.Value(k) // so that what is derived from t needs no goroutine to end with it
	}
	if t.Deaf {
		return context.WithoutCancel(t.Parent).Value(k) // has no cause to end, either
	}
	return t.Parent.Value(k)
}
