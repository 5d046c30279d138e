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
	// ErrPanicked is matched by the errors of OfHook.
	ErrPanicked = errors.New("panic in a hook of the client")

	// ErrUnsettled is the error of a call whose hook has ended its goroutine.
	ErrUnsettled = errors.New("a hook of the client did not return")
)

var panicLogged atomic.Int64 // time of the last logged panic, in Unix nanoseconds

// OfHook logs the panic of a hook of the client, and converts it to an
// error. It is for goroutines whose panic would end the process.
func OfHook(p any) error {
	err := fmt.Errorf("%w: %v", ErrPanicked, p)
	now, last := time.Now().UnixNano(), panicLogged.Load()
	if time.Duration(now-last) >= time.Minute && panicLogged.CompareAndSwap(last, now) {
		slog.Default().Error("redisstore: "+err.Error()+"; others are not logged for a minute", "stack", string(debug.Stack()))
	}
	return err
}
