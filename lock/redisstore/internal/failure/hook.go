package failure

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"
)

var (
	// ErrPanicked is matched by what OfHook returns.
	ErrPanicked = errors.New("panic in a hook of the client")

	// ErrUnsettled is that of a hook that has ended its goroutine.
	ErrUnsettled = errors.New("a hook of the client did not return")
)

var panicLogged atomic.Int64 // when a panic last was, in Unix nanoseconds

// OfHook logs what a hook of the client has panicked with, and makes an error
// of it. It is for goroutines whose panic would end the process.
func OfHook(p any) error {
	err := fmt.Errorf("%w: %v", ErrPanicked, p)
	now, last := time.Now().UnixNano(), panicLogged.Load()
	if time.Duration(now-last) >= time.Minute && panicLogged.CompareAndSwap(last, now) {
		slog.Default().Error("redisstore: "+err.Error()+"; others are not logged for a minute", "stack", string(debug.Stack()))
	}
	return err
}
