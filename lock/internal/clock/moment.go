// Package clock times leases: moments of one process, and queues with one timer each.
package clock

import (
	"math"
	"time"
)

// Moment is a point in time: the time since the start of the process. It takes one word
// where a time.Time takes three, and costs half as much to read, since it has no wall clock.
type Moment time.Duration

// Never is later than every other Moment.
const Never Moment = math.MaxInt64

var start = time.Now()

// Now returns the present moment, by the monotonic clock.
func Now() Moment { return Moment(time.Since(start)) }

// Since returns the time from m to now.
func (m Moment) Since() time.Duration { return time.Duration(Now() - m) }

// Until returns the time from now to m.
func (m Moment) Until() time.Duration { return time.Duration(m - Now()) }

// Add returns the moment d later, at most [Never].
func (m Moment) Add(d time.Duration) Moment {
	if sum := m + Moment(d); d <= 0 || sum > m {
		return sum
	}
	return Never
}

// Wall returns m by the wall clock as it is set now.
func (m Moment) Wall() time.Time { return time.Now().Add(-m.Since()) }
