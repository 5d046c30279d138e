package lock

import (
	"time"

	"github.com/httplatch/httplatch/lock/internal/bounded"
)

// moment is a point in time, as long after the start of the process as it says.
// It is what a lease is timed by: a word in place of the three of a time.Time,
// and read at half the cost, since it has nothing to say of the wall clock.
type moment time.Duration

var base = time.Now()

func now() moment { return moment(time.Since(base)) }

func (m moment) since() time.Duration { return time.Duration(now() - m) }
func (m moment) until() time.Duration { return time.Duration(m - now()) }

// add returns the moment that is d later, or the last one there is.
func (m moment) add(d time.Duration) moment { return moment(bounded.Later(int64(m), d)) }

// wall is m by the wall clock as it is set now.
func (m moment) wall() time.Time { return time.Now().Add(-m.since()) }
