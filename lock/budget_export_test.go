package lock

import (
	"reflect"
	"sync/atomic"
)

// WithoutRetryBudget lets l send again, and clean up, as if it cost nothing.
func WithoutRetryBudget(l *Locker) {
	// A bucket takes no more than it has room for, and that is not in this package.
	saved := reflect.ValueOf(&l.core.sender.Retries).Elem().FieldByName("saved")
	(*atomic.Int64)(saved.Addr().UnsafePointer()).Store(1 << 40)
}
