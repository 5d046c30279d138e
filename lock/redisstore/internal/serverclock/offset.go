// Package serverclock tells what time it is at a server, from what it has answered.
package serverclock

import (
	"sync"
	"time"
)

// Offset is what is known about a server's clock: it is ahead of the monotonic
// time since base by at least low and at most high.
type Offset struct {
	base time.Time

	mu        sync.Mutex
	known     bool
	low, high time.Duration
}

// NewOffset returns an Offset from which nothing is known. base is about now.
func NewOffset(base time.Time) *Offset { return &Offset{base: base} }

// Heard takes in that the server's clock was at now, some time between sent and
// received. Both are bounds of the offset; if they contradict what is known, a
// clock was set or another server has taken over, and only they count.
func (c *Offset) Heard(sent, received time.Time, now time.Duration) {
	low, high := now-received.Sub(c.base), now-sent.Sub(c.base)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known && low <= c.high && high >= c.low {
		low, high = max(low, c.low), min(high, c.high)
	}
	c.known, c.low, c.high = true, low, high
}

// At is t by the server's clock, in µs and rather too early than too late, or a
// time long past if the clock is not known.
func (c *Offset) At(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 1
	}
	return (t.Sub(c.base) + c.low).Microseconds()
}
