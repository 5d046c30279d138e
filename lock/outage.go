package lock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// outage is a time in which calls to the store fail. The zero value is none.
type outage struct {
	on          atomic.Bool
	mu          sync.Mutex
	began, last clock.Moment // the first failure, and the latest
}

// calm is the time without a failure after which an answer ends an outage. A store that fails every
// second call has not recovered.
const calm = 5 * time.Second

// fail notes a failure. first reports that it begins an outage.
func (o *outage) fail() (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = clock.Now()
	if first = !o.on.Load(); first {
		o.began = o.last
		o.on.Store(true)
	}
	return first
}

// succeed notes an answer. over reports that it ends an outage, in which calls failed for the time took.
func (o *outage) succeed() (took time.Duration, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.on.Load() || o.last.Since() < calm {
		return 0, false
	}
	o.on.Store(false)
	return time.Duration(o.last - o.began), true
}
