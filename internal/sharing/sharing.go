// Package sharing says from how many commands in flight on package redisstore
// shares round trips, so that tests of any package can make stores that always
// do. Nothing else changes it.
package sharing

import (
	"sync"
	"sync/atomic"
)

var (
	from    atomic.Int64 // 0: what redisstore has found to be best
	opening sync.Mutex
)

// From is from how many commands in flight on the stores that are made now
// share round trips, 0 for their default.
func From() int64 { return from.Load() }

// Always runs open. The stores that it makes share round trips from the first
// command on, those that others make meanwhile may.
func Always(open func()) {
	opening.Lock()
	defer opening.Unlock()
	from.Store(1)
	defer from.Store(0)
	open()
}
