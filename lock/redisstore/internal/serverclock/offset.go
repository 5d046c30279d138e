// Package serverclock estimates the time at a server from its answers.
package serverclock

import (
	"sync"
	"time"
)

// Offset bounds a server's clock, which is ahead of the monotonic
// time since base by at least low and at most high.
type Offset struct {
	base time.Time

	mu        sync.Mutex
	known     bool
	low, high time.Duration
}

// NewOffset returns an Offset without bounds. base is about now.
func NewOffset(base time.Time) *Offset { return &Offset{base: base} }

// Heard notes that the server's clock was at now, some time between sent and
// received. Both bound the offset. If they contradict the earlier bounds, a
// clock was set or another server has taken over, and the earlier bounds are
// dropped.
func (c *Offset) Heard(sent, received time.Time, now time.Duration) {
	low, high := now-received.Sub(c.base), now-sent.Sub(c.base)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known && low <= c.high && high >= c.low {
		low, high = max(low, c.low), min(high, c.high)
	}
	c.known, c.low, c.high = true, low, high
}

// At returns t by the server's clock, in µs. The result may be too early, and is never too late. If
// the clock is unknown, it is a time long past.
func (c *Offset) At(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 1
	}
	return (t.Sub(c.base) + c.low).Microseconds()
}
