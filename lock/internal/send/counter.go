package send

import (
	"context"
	"sync/atomic"
)

// Counter counts the activities that must end before a Close may return. Unlike a WaitGroup,
// it has a Wait with a context, may grow during a Wait, and can be closed to newcomers.
type Counter struct {
	state atomic.Int64                  // the number, and counterClosed
	zero  atomic.Pointer[chan struct{}] // not nil during a Wait; closed when the number is 0
}

const counterClosed = 1 << 62

// Enter counts one more, and reports false if the counter is closed.
func (c *Counter) Enter() bool {
	for {
		s := c.state.Load()
		if s&counterClosed != 0 {
			return false
		}
		if c.state.CompareAndSwap(s, s+1) {
			return true
		}
	}
}

// Join counts one more on behalf of an activity that has not left. The counter may be closed.
func (c *Counter) Join() { c.state.Add(1) }

// Leave counts one less, and ends the Waits after the last. A Wait stores its channel before
// it reads the number, and Leave lowers the number before it reads the channel. So one of the
// two sees the other.
func (c *Counter) Leave() {
	if c.state.Add(-1)&^counterClosed != 0 {
		return
	}
	if zero := c.zero.Load(); zero != nil && c.Count() == 0 && c.zero.CompareAndSwap(zero, nil) {
		close(*zero)
	}
}

// Count returns the number.
func (c *Counter) Count() int { return int(c.state.Load() &^ counterClosed) }

// Close makes every later Enter fail.
func (c *Counter) Close() { c.state.Or(counterClosed) }

// Wait returns 0 when the number is 0, or the number when ctx ends.
func (c *Counter) Wait(ctx context.Context) int {
	made := make(chan struct{})
	c.zero.CompareAndSwap(nil, &made)
	zero := c.zero.Load() // of the first Wait; nil if the number was 0 since
	if zero == nil || c.Count() == 0 {
		return 0
	}
	select {
	case <-*zero:
		return 0
	case <-ctx.Done():
		return c.Count()
	}
}
