// Package bounded adds numbers up to a bound.
package bounded

import (
	"math"
	"sync/atomic"
	"time"
)

// Add adds n to count unless the sum exceeds limit. It does not add first and take back
// the excess: meanwhile, calls whose n fits would be refused.
func Add(count *atomic.Int64, n, limit int64) bool {
	for {
		old := count.Load()
		if n > limit-old && n > 0 {
			return false
		}
		if count.CompareAndSwap(old, old+n) {
			return true
		}
	}
}

// Later returns t + d in nanoseconds, or the latest moment if the sum overflows.
func Later(t int64, d time.Duration) int64 {
	if sum := t + int64(d); d <= 0 || sum > t {
		return sum
	}
	return math.MaxInt64
}
