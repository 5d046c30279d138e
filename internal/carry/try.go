package carry

import (
	"context"
	"sync"
	"time"
)

// Try is the context of a send that its caller makes itself. It ends with that of
// the caller, and at a deadline.
//
// Most sends are answered long before, by code that can see to the deadline
// without a timer for each. So Try makes what ends when it is first asked for.
type Try struct {
	parent   context.Context //nolint:containedctx // it is one
	deadline time.Time
	counter  Counter

	mu     sync.Mutex
	ending context.Context //nolint:containedctx // ends with the Try; nil until somebody asks
	cancel context.CancelFunc
	over   bool
}

// Start makes t, which is new, the context of a send. deadline counts unless
// that of parent is earlier.
func (t *Try) Start(parent context.Context, deadline time.Time, c Counter) {
	if earlier, ok := parent.Deadline(); ok && earlier.Before(deadline) {
		deadline = earlier
	}
	t.parent, t.deadline, t.counter = parent, deadline, c
}

// End gives back what t holds, after the call has returned.
func (t *Try) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.cancel != nil {
		t.cancel()
	}
}

// GivenUp is closed when the caller gives up. The deadline is not its business.
func (t *Try) GivenUp() <-chan struct{} { return t.parent.Done() }

// Deadline is when the time of the send is over.
func (t *Try) Deadline() (deadline time.Time, ok bool) { return t.deadline, true }

// Done is closed when the caller gives up, and at the deadline.
func (t *Try) Done() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending == nil {
		t.ending, t.cancel = context.WithDeadline(t.parent, t.deadline)
		if t.over {
			t.cancel()
		}
	}
	return t.ending.Done()
}

// Err says why it is over.
func (t *Try) Err() error {
	t.mu.Lock()
	ending, over := t.ending, t.over
	t.mu.Unlock()
	switch {
	case ending != nil:
		return ending.Err()
	case t.parent.Err() != nil:
		return t.parent.Err()
	case over:
		return context.Canceled
	case !time.Now().Before(t.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// Value is that of the caller's context, but for the Counter.
func (t *Try) Value(k any) any {
	if k == (key{}) {
		return t.counter
	}
	return t.parent.Value(k)
}
